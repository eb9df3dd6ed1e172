"""Calls that share a worker thread: each of them runs once, in order, and fails alone."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from osmosis_ai.rollout.utils.thread_batches import ThreadBatches

batches = ThreadBatches(pause_sec=0.02)


async def test_each_call_runs_in_a_thread_and_tells_its_own_caller() -> None:
    ran: list[tuple[int, bool]] = []

    def call(number: int) -> int:
        ran.append((number, threading.current_thread() is threading.main_thread()))
        if number % 3 == 0:
            raise ValueError(f"no {number}")
        return 10 * number

    outcomes = await asyncio.gather(
        *(batches.run(lambda number=number: call(number)) for number in range(1, 8)),
        return_exceptions=True,
    )
    assert ran == [(number, False) for number in range(1, 8)]
    assert [str(outcome) for outcome in outcomes] == ["10", "20", "no 3", "40", "50", "no 6", "70"]
    with pytest.raises(ValueError, match="no 9"):
        await batches.run(lambda: call(9))


async def test_the_event_loop_goes_on_and_late_calls_get_a_thread_of_their_own() -> None:
    gate = threading.Event()
    slow = asyncio.create_task(batches.run(gate.wait))
    await asyncio.sleep(0)
    threads: list[int] = []
    while not threads:  # the first of these may still have shared the thread of the slow one
        late = asyncio.create_task(batches.run(lambda: threads.append(threading.get_ident())))
        await asyncio.wait({late}, timeout=0.1)
    assert not slow.done()
    gate.set()
    await slow


async def test_a_caller_that_is_cancelled_leaves_the_others_alone() -> None:
    gate = threading.Event()
    first = asyncio.create_task(batches.run(gate.wait))
    second = asyncio.create_task(batches.run(lambda: None))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    gate.set()
    await second
    assert first.cancelled()


def test_event_loops_one_after_the_other() -> None:
    def ran() -> Iterator[str]:
        for name in ("a", "b"):
            done: list[str] = []
            asyncio.run(batches.run(lambda name=name, done=done: done.append(name)))
            yield from done

    assert list(ran()) == ["a", "b"]
