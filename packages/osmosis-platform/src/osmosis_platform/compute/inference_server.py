"""Keeps the inference server alive: started at first need, restarted when it ends, told about deployments."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from sqlalchemy import select

from osmosis_ai.processes.ports import free_port
from osmosis_platform.adapters.files import adapter_folder
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.adapters.service import active_models, served_name
from osmosis_platform.compute.children import Child, Spawner
from osmosis_platform.compute.worker import worker_env
from osmosis_platform.context import Platform
from osmosis_platform.errors import PlatformError, Unavailable

log = logging.getLogger("osmosis_platform.inference")

START_SECONDS = 180.0
IDLE_UNLOAD_SECONDS = 1800.0
_LONGEST_BACKOFF = 60.0
_CALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the database says should be served. Adapters are (name, base, folder)."""

    base_models: dict[str, str]
    adapters: dict[str, tuple[str, Path]]


class InferenceServer:
    """The one inference server process of a platform. Every method may be called from any thread."""

    def __init__(self, platform: Platform, spawner: Spawner, command: Sequence[str]) -> None:
        self._platform = platform
        self._spawner = spawner
        self._command = list(command)
        self._key = secrets.token_urlsafe(32)
        self._guard = threading.RLock()
        self._child: Child | None = None
        self._url = ""
        self._port: int | None = None
        self._known = Wanted({}, {})
        self._failures = 0
        self._not_before = 0.0
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._monitor: threading.Thread | None = None

    def ensure(
        self, *, timeout: float = START_SECONDS, interrupted: Callable[[], bool] = lambda: False
    ) -> tuple[str, str]:
        """Address and key of a running server that serves everything deployed now; raises Unavailable.

        Starts the process when there is none; `timeout` bounds the wait for another caller that is starting it. While it keeps failing, this raises at once until its next try is due.
        """
        if not self._guard.acquire(timeout=timeout):
            raise Unavailable("The inference server is still starting. Try again shortly.")
        try:
            if self._closed.is_set():
                raise Unavailable("The platform is stopping.")
            if not self._running():
                self._start(interrupted)
            self._reconcile()
            return self._url, self._key
        finally:
            self._guard.release()

    def sync_soon(self) -> None:
        """Deployments changed: let a running server follow."""
        self._wake.set()

    @property
    def status(self) -> str:
        """`running`, `stopped` or `failing`."""
        child = self._child
        if child is not None and child.poll() is None:
            return "running"
        return "failing" if self._failures else "stopped"

    @property
    def pid(self) -> int | None:
        """The process id of the running server."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def close(self) -> None:
        """End the process and stop watching."""
        self._closed.set()
        self._wake.set()
        child = self._child
        if child is not None:
            child.kill()
        if self._monitor is not None:
            self._monitor.join(timeout=5.0)

    def _running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def _start(self, interrupted: Callable[[], bool]) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            raise Unavailable(
                f"The inference server failed {self._failures} times; the next try is in {wait:.0f} s."
            )
        if self._child is not None:
            self._child.kill()  # it has ended; this closes its pipes
        wanted = self._wanted()
        # A restart keeps the port: running evaluations hold the address and wait for it to answer again.
        port = self._port or free_port()
        child = self._spawner.start(
            self._command,
            env=worker_env(),
            cwd=self._platform.settings.data_dir.resolve(),
            on_line=lambda line: log.info("inference server: %s", line),
            name="inference",
        )
        child.send_spec(self._spec(port, wanted))
        self._child, self._url = child, f"http://127.0.0.1:{port}"
        try:
            self._wait_ready(child, time.monotonic() + START_SECONDS, interrupted)
        except Unavailable:
            child.kill()
            self._port = None
            if not interrupted():
                self._failures += 1
                self._not_before = time.monotonic() + min(2.0 ** (self._failures - 1), _LONGEST_BACKOFF)
            raise
        self._failures, self._known, self._port = 0, wanted, port
        if self._monitor is None:
            self._monitor = threading.Thread(target=self._watch, name="inference-monitor", daemon=True)
            self._monitor.start()

    def _spec(self, port: int, wanted: Wanted) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": port,
            "api_key": self._key,
            "base_models": wanted.base_models,
            "adapters": [
                {"base": base, "name": name, "path": str(path)}
                for name, (base, path) in wanted.adapters.items()
            ],
            "idle_unload_s": IDLE_UNLOAD_SECONDS,
        }

    def _wait_ready(self, child: Child, deadline: float, interrupted: Callable[[], bool]) -> None:
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline and not interrupted() and not self._closed.is_set():
                if child.wait(0.1) is not None:
                    child.finish_reading()
                    tail = "\n".join(list(child.tail)[-5:])
                    raise Unavailable(f"The inference server ended with status {child.poll()}:\n{tail}")
                try:
                    if client.get(f"{self._url}/health").status_code == 200:
                        return
                except httpx.HTTPError:
                    continue
        raise Unavailable("The inference server did not become ready in time.")

    def _wanted(self) -> Wanted:
        with self._platform.database.read() as session:
            models = session.scalars(select(BaseModel).where(BaseModel.path.is_not(None)))
            bases = {model.name: model.path for model in models if model.path is not None}
            active = [(model, model.base_model.name) for model in active_models(session)]
        adapters = {}
        for model, base in active:
            try:
                adapters[served_name(model)] = (base, adapter_folder(self._platform, model))
            except PlatformError as error:
                log.error("LoRA model %s cannot be served: %s", model.name, error.message)
        return Wanted(bases, adapters)

    def _reconcile(self) -> None:
        """Tell the running server what changed in the database since it was last told."""
        wanted, known = self._wanted(), self._known
        if wanted == known:
            return
        headers = {"Authorization": f"Bearer {self._key}"}
        with httpx.Client(
            base_url=self._url, headers=headers, timeout=_CALL_SECONDS, trust_env=False
        ) as client:
            try:
                for name, path in wanted.base_models.items():
                    if known.base_models.get(name) != path:
                        _done(client.put("/admin/base-models", json={"name": name, "path": path}))
                for name in known.adapters.keys() - wanted.adapters.keys():
                    _done(client.delete(f"/admin/adapters/{quote(name, safe='')}"))
                for name, (base, folder) in wanted.adapters.items():
                    if known.adapters.get(name) != (base, folder):
                        _done(
                            client.put(
                                f"/admin/adapters/{quote(name, safe='')}",
                                json={"base": base, "path": str(folder)},
                            )
                        )
            except httpx.HTTPError as error:
                raise Unavailable("The inference server was interrupted. Try again shortly.") from error
        self._known = wanted

    def _watch(self) -> None:
        """Restart the process when it ends, and let it follow deployments."""
        while not self._closed.is_set():
            self._wake.wait(timeout=1.0)
            if self._closed.is_set():
                return
            told = self._wake.is_set()
            self._wake.clear()
            try:
                if not self._running():
                    if time.monotonic() >= self._not_before:
                        log.warning("the inference server ended; starting it again")
                        self.ensure()
                elif told:
                    self.ensure()
            except PlatformError as error:
                log.warning("%s", error.message)
            except Exception:
                log.exception("the inference server cannot be kept in step; trying again")
                self._closed.wait(1.0)


def _done(answer: httpx.Response) -> None:
    """A model that the server refuses is not served, and that is all: the others are not to suffer for it."""
    what = f"{answer.request.method} {answer.request.url.path}"
    if answer.is_server_error:
        raise Unavailable(f"The inference server failed at {what}. Try again shortly.")
    if answer.is_error:
        log.error("the inference server refused %s: %s", what, answer.text[:500])
