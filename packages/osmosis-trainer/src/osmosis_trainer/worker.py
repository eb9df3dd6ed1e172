"""The training worker as a process: spec in, exit status out, every failure reported once."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from osmosis_ai.errors import OsmosisError
from osmosis_ai.worker.exit_status import ExitStatus
from osmosis_ai.worker.run_client import RunApiError, RunClient
from osmosis_ai.worker.running import run_worker
from osmosis_ai.worker.spec import TrainSpec
from osmosis_trainer.collect.stop import StoppedError, StopSignal
from osmosis_trainer.errors import TrainerError
from osmosis_trainer.parts import Parts

logger = logging.getLogger(__name__)

Train = Callable[[Parts], Awaitable[None]]

_REASON_LENGTH = 2000


def run_training_worker(train: Train) -> int:
    """Read the spec from standard input and train its run; returns the exit status of the process."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    return run_worker(TrainSpec, partial(work, train))


async def work(train: Train, spec: TrainSpec, client: RunClient) -> int:
    """Train the run of `spec` and report how it ended."""
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
