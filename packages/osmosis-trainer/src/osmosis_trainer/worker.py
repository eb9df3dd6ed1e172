"""The training worker as a process: spec in, exit status out, every failure reported once."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable

from osmosis_ai.errors import OsmosisError
from osmosis_ai.worker.exit_status import ExitStatus
from osmosis_ai.worker.lifeline import start_lifeline
from osmosis_ai.worker.run_client import PlatformUnreachableError, RunApiError, RunClient
from osmosis_ai.worker.spec import TrainSpec, WorkerSpecError, read_spec
from osmosis_trainer.collect.stop import StoppedError, StopSignal
from osmosis_trainer.errors import TrainerError
from osmosis_trainer.parts import Parts

logger = logging.getLogger(__name__)

Train = Callable[[Parts], Awaitable[None]]

_CRASHED = 1
_REASON_LENGTH = 2000


def run_worker(train: Train) -> int:
    """Read the spec from standard input and train its run; returns the exit status of the process.

    Standard input stays open as the lifeline. A spec that cannot be read is a crash: there is nobody to report it to.
    """
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        spec = read_spec(sys.stdin.buffer)
        if not isinstance(spec, TrainSpec):
            raise WorkerSpecError(f"the training worker was started with a spec of kind {spec.kind!r}")
    except WorkerSpecError as error:
        logger.error("%s", error)
        return _CRASHED
    start_lifeline()
    return asyncio.run(work(spec, train))


async def work(spec: TrainSpec, train: Train) -> int:
    """Train the run of `spec`, or find out that the platform is gone for good."""
    lost = asyncio.Event()
    client = RunClient(
        api_url=spec.api_url, run_id=spec.run_id, token=spec.run_token, on_lost=lambda _: lost.set()
    )
    try:
        async with client:
            return await _until_lost(_train(spec, train, client), lost)
    except PlatformUnreachableError as error:
        logger.error("%s", error)
        return ExitStatus.UNREACHABLE
    except RunApiError as error:
        logger.error("%s", error)
        return _CRASHED


async def _until_lost(work: Awaitable[int], lost: asyncio.Event) -> int:
    """Await the work; once the platform is lost it is cancelled, since nothing of it could be reported."""
    working, losing = asyncio.ensure_future(work), asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return await working
        return ExitStatus.UNREACHABLE
    finally:
        for task in (working, losing):
            task.cancel()
        await asyncio.gather(working, losing, return_exceptions=True)


async def _train(spec: TrainSpec, train: Train, client: RunClient) -> int:
    # Engine and rollouts are loaded here: a worker without a valid spec answers at once.
    from osmosis_trainer.setup import open_parts

    stop = StopSignal()
    listening = asyncio.create_task(_listen_for_stop(client, stop))
    try:
        async with open_parts(spec, client, stop) as parts:
            await train(parts)
        await client.flush()
        return ExitStatus.FINISHED
    except StoppedError:
        await client.flush()
        return ExitStatus.STOPPED
    except RunApiError:
        raise
    except Exception as error:
        logger.exception("the run failed")
        reason, code = failure(error)
        await client.failed(reason, code)
        return ExitStatus.FAILED
    finally:
        listening.cancel()


async def _listen_for_stop(client: RunClient, stop: StopSignal) -> None:
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop.request, f"the worker got {number.name}")
    try:
        await client.stop_requested.wait()
        stop.request("a user asked for it")
        await asyncio.Future()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def failure(error: Exception) -> tuple[str, str]:
    """Reason, in one sentence, and error type of the `failed` event."""
    if isinstance(error, TrainerError | OsmosisError):
        return str(error)[:_REASON_LENGTH], error.code
    kind = type(error).__name__
    return f"{kind}: {error}"[:_REASON_LENGTH], kind
