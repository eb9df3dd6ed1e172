"""A worker as a process: spec in, exit status out, and an end to the work once the platform is lost."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from osmosis_ai.worker.exit_status import ExitStatus
from osmosis_ai.worker.lifeline import start_lifeline
from osmosis_ai.worker.run_client import PlatformUnreachableError, RunApiError, RunClient
from osmosis_ai.worker.spec import WorkerSpec, WorkerSpecError, read_spec

logger = logging.getLogger(__name__)

_CRASHED = 1


def run_worker[S: WorkerSpec](kind: type[S], work: Callable[[S, RunClient], Awaitable[int]]) -> int:
    """Read a spec of this kind from standard input, do the work and return the exit status of the process.

    Standard input stays open as the lifeline. A spec that cannot be read is a crash: there is nobody to report it to.
    """
    try:
        spec = read_spec(sys.stdin.buffer)
        if not isinstance(spec, kind):
            raise WorkerSpecError(
                f"a worker for {kind.__name__} was started with a spec of kind {type(spec).__name__}"
            )
    except WorkerSpecError as error:
        logger.error("%s", error)
        return _CRASHED
    start_lifeline()
    return asyncio.run(report(spec, work))


async def report[S: WorkerSpec](spec: S, work: Callable[[S, RunClient], Awaitable[int]]) -> int:
    """Do the work with a client of the run of `spec`. Once the platform is lost the work is cancelled."""
    lost: asyncio.Future[RunApiError] = asyncio.get_running_loop().create_future()
    client = RunClient(
        api_url=spec.api_url, run_id=spec.run_id, token=spec.run_token, on_lost=lost.set_result
    )
    try:
        async with client:
            return await _until_lost(work(spec, client), lost)
    except PlatformUnreachableError as error:
        logger.error("%s", error)
        return ExitStatus.UNREACHABLE
    except RunApiError as error:
        logger.error("%s", error)
        return _CRASHED


async def _until_lost(work: Awaitable[int], lost: asyncio.Future[RunApiError]) -> int:
    working = asyncio.ensure_future(work)
    waiting: set[asyncio.Future[Any]] = {working, lost}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise lost.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
