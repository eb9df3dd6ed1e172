"""Whether the rollout server is still there, and still the same one."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx

from osmosis_ai.rollout.controller.server_client import RolloutProtocolError, RolloutServerClient

logger = logging.getLogger(__name__)

POLL_SEC = 1.0
REFUSED_SEC = 3.0
_START_POLL_SEC = 0.2


class ServerUnavailableError(Exception):
    """The rollout server did not become ready in time; the message says why."""


class ServerWatch:
    """Polls ``/health`` while rollouts are open and calls ``on_lost(reason)`` when the server is gone.

    Gone means: connections were refused for more than three seconds, or another process answers (``instance_id`` or
    ``process_id`` changed). A slow answer is not gone: user code may hold the server's event loop. At the first contact
    the server has to be ``instance_id``, if given, or a restart of it: ids ``<name>.<count>`` with the same name are starts
    of one server. After a loss any successor is accepted.
    """

    def __init__(
        self,
        server: RolloutServerClient,
        *,
        on_lost: Callable[[str], None],
        is_needed: Callable[[], bool],
        instance_id: str | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._server = server
        self._on_lost = on_lost
        self._is_needed = is_needed
        self._instance_id = instance_id
        self._process_id: str | None = None
        self._met = False
        self._start_timeout_s = start_timeout_s
        self._health: dict[str, Any] | None = None
        self._starting: asyncio.Task[dict[str, Any]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def ready(self) -> dict[str, Any]:
        """Wait until the server answers; its last health object. Raises :class:`ServerUnavailableError`."""
        if self._health is not None:
            return self._health
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._until_ready())
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._starting)

    def wake(self) -> None:
        """A rollout was opened: start to look after the server."""
        self._wake.set()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    def suspect(self) -> None:
        """A request was refused: ask for readiness again before the next rollout."""
        self._health = None

    async def close(self) -> None:
        """Stop looking."""
        tasks = [task for task in (self._starting, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_ready(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._start_timeout_s
        while True:
            try:
                health, instance = await self._server.health()
                if self._met:
                    self._compare(health, instance)
                    return health
                if _is_expected(instance, self._instance_id):
                    self._adopt(health, instance)
                    return health
                reason = f"instance {instance!r} answers instead of {self._instance_id!r}"
            except (httpx.HTTPError, RolloutProtocolError) as error:
                reason = str(error) or type(error).__name__
            if loop.time() >= give_up_at:
                raise ServerUnavailableError(
                    f"the rollout server at {self._server.base_url} was not ready within "
                    f"{self._start_timeout_s:g} s: {reason}"
                )
            await asyncio.sleep(_START_POLL_SEC)

    def _adopt(self, health: dict[str, Any], instance: str | None) -> None:
        self._met = True
        self._health = health
        self._instance_id = instance or self._instance_id
        self._process_id = _process_of(health) or self._process_id

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        refused_since: float | None = None
        while True:
            if not self._is_needed():
                refused_since = None
                self._wake.clear()
                await self._wake.wait()
            try:
                health, instance = await self._server.health()
            except httpx.ConnectError:
                refused_since = loop.time() if refused_since is None else refused_since
                if loop.time() - refused_since >= REFUSED_SEC:
                    refused_since = None
                    self._lose(f"the rollout server at {self._server.base_url} refuses connections")
            except (httpx.HTTPError, RolloutProtocolError) as error:
                logger.info("the rollout server did not answer a health check: %s", error)
            else:
                refused_since = None
                self._compare(health, instance)
            await asyncio.sleep(POLL_SEC)

    def _compare(self, health: dict[str, Any], instance: str | None) -> None:
        known_instance, known_process = self._instance_id, self._process_id
        process = _process_of(health)
        changed = (instance and known_instance and instance != known_instance) or (
            process and known_process and process != known_process
        )
        if changed:
            self._lose(f"another rollout server answers at {self._server.base_url}")
        self._adopt(health, instance)

    def _lose(self, reason: str) -> None:
        self._health = self._instance_id = self._process_id = None
        self._on_lost(reason)


def _is_expected(found: str | None, expected: str | None) -> bool:
    if found is None or expected is None or found == expected:
        return True
    name, dot, _ = expected.rpartition(".")
    return bool(dot) and found.startswith(f"{name}.")


def _process_of(health: dict[str, Any]) -> str | None:
    process = health.get("process_id")
    return process if isinstance(process, str) else None
