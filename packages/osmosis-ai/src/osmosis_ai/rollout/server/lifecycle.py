"""Background rollouts of one server, and its end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class RolloutTasks:
    """Keeps the tasks of running rollouts alive and ends them with the server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, rollout: Coroutine[Any, Any, None]) -> None:
        """Run the rollout in the background."""
        task = asyncio.get_running_loop().create_task(rollout)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def drain(self, timeout_sec: float) -> None:
        """Let running rollouts finish for that many seconds, then cancel them and wait for their end.

        A cancelled rollout posts no callbacks: its controller finds the server gone.
        """
        if not self._tasks:
            return
        logger.info("Waiting up to %.0f s for %d rollouts", timeout_sec, len(self._tasks))
        _, unfinished = await asyncio.wait(set(self._tasks), timeout=timeout_sec)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A rollout task crashed", exc_info=error)
