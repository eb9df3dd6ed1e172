"""`sys.exit` in user code, also in tasks that nobody waits for, ends that code and nothing else."""

import asyncio
import contextvars
import gc
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_ai.rollout.utils.exit_guard import ExitInsideError, without_exit

SAID = r"user code called SystemExit\(3\)"


async def leave(*waits: Any) -> None:
    for wait in waits:
        await wait
    sys.exit(3)


async def at_once() -> None:
    await leave()


async def in_a_thread() -> None:
    await asyncio.to_thread(sys.exit, 3)


async def awaited_task() -> None:
    await asyncio.create_task(leave(asyncio.sleep(0)))


async def gathered() -> None:
    await asyncio.gather(leave(), asyncio.Event().wait())


async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(asyncio.sleep(0)))
        group.create_task(asyncio.Event().wait())


async def never_waited_for() -> None:
    task = asyncio.create_task(leave())
    await asyncio.Event().wait()
    await task


async def two_levels_down() -> None:
    async def inner() -> None:
        task = asyncio.create_task(leave())
        await asyncio.Event().wait()
        await task

    await asyncio.create_task(inner())


async def in_a_copied_context() -> None:
    task = asyncio.create_task(leave(), context=contextvars.copy_context())
    await asyncio.Event().wait()
    await task


async def swallowed() -> None:
    """The framework goes on after the task was cancelled, and ends well."""
    task = asyncio.create_task(leave())
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.wait({task})


async def ended_before_it_noticed() -> None:
    await asyncio.wait({asyncio.create_task(leave())})


@pytest.mark.parametrize(
    "code",
    [
        *(at_once, in_a_thread, awaited_task, gathered, never_waited_for),
        *(two_levels_down, in_a_copied_context, swallowed, ended_before_it_noticed),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
async def test_an_exit_is_an_error(
    code: Callable[..., Any], eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory if eager else None)
    async with asyncio.timeout(10):
        with pytest.raises(ExitInsideError, match=SAID):
            await without_exit(code)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation is left over
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_an_exit_in_a_group_is_an_error_too() -> None:
    with pytest.raises(ExitInsideError, match=SAID):
        await without_exit(in_a_group)


async def test_a_task_that_outlives_its_code_ends_nothing() -> None:
    go = asyncio.Event()
    left: list[asyncio.Task[None]] = []

    async def code() -> str:
        left.append(asyncio.create_task(leave(go.wait())))
        return "done"

    assert await without_exit(code) == "done"
    go.set()
    with pytest.raises(ExitInsideError, match=SAID):
        await left[0]


async def test_a_cancellation_from_outside_stays_one() -> None:
    started = asyncio.Event()

    async def code() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(without_exit(code))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_tasks_of_others_are_left_as_they_are() -> None:
    async def code() -> Any:
        return asyncio.create_task(asyncio.sleep(0))

    guarded = await without_exit(code)
    ordinary = asyncio.create_task(asyncio.sleep(0), name="mine")
    assert inspect.iscoroutine(ordinary.get_coro())
    assert ordinary.get_name() == "mine"
    assert not inspect.iscoroutine(guarded.get_coro())
    # What anyio and debuggers look at.
    assert inspect.getcoroutinestate(guarded.get_coro()) == inspect.CORO_CREATED
    assert "sleep" in repr(guarded)
    assert guarded.get_coro().__qualname__ == "sleep"
    await asyncio.gather(guarded, ordinary)


async def test_what_is_no_coroutine_is_refused_where_it_is_given() -> None:
    async def code() -> None:
        await asyncio.create_task("text")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="coroutine"):
        await without_exit(code)


async def test_a_task_that_was_cancelled_before_it_began_warns_of_nothing() -> None:
    async def code() -> None:
        task = asyncio.create_task(leave())
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    await without_exit(code)
