"""Keeping ``sys.exit`` in user code from ending the event loop that it shares with other rollouts.

Agents run what a model writes, and models write ``exit()``. A task that ends with :class:`SystemExit` takes the event loop with it,
whoever waits for the task.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any


class ExitInsideError(RuntimeError):
    """User code wanted to end the process."""


async def without_exit[T](call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of ``call``. When it or a task that it started calls ``sys.exit``, it is cancelled and counts as failed.

    Raises:
        ExitInsideError: says what was called.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = task.get_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _GuardedTasks):
        loop.set_task_factory(_GuardedTasks(factory))
    guard = _Guard(task)
    token = _guard.set(guard)
    try:
        result = await call()
        await guard.check()
        return result
    except SystemExit as error:
        raise guard.refuse(error) from error
    except BaseException:
        await guard.check()
        raise
    finally:
        guard.task = None
        _guard.reset(token)


class _Guard:
    """Ends one call at the first exit inside it. ``task`` awaits the call, None once it is over."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task: asyncio.Task[Any] | None = task
        self._error: ExitInsideError | None = None
        self._cancelled = False

    def refuse(self, error: SystemExit) -> ExitInsideError:
        """The error to raise in place of ``error``."""
        if self._error is None:
            self._error = ExitInsideError(f"user code called {error!r}")
            # Frameworks may wait for ever for a tool that ended like this.
            current = asyncio.current_task()
            if self.task is not None and current is not None and current is not self.task:
                self._cancelled = self.task.cancel()
                current.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return self._error

    async def check(self) -> None:
        """After the call: raise the error, if there was one, unless the task was cancelled from outside as well."""
        if self._error is None:
            return
        if self._cancelled and self.task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # the cancellation may not have arrived yet
            if self.task.uncancel():
                return
        raise self._error


_guard: ContextVar[_Guard | None] = ContextVar("osmosis_exit_guard", default=None)


class _GuardedTasks:
    """A task factory; only tasks of guarded code differ from those of ``inner`` (None: asyncio's own)."""

    def __init__(self, inner: Callable[..., asyncio.Future[Any]] | None) -> None:
        self._inner = inner

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        context: Context | None = options.get("context")
        guard = _guard.get() if context is None else context.get(_guard)
        if guard is not None and asyncio.iscoroutine(coro):
            coro = _GuardedCoroutine(coro, guard)
        if self._inner is not None:
            return self._inner(loop, coro, **options)
        return asyncio.Task(coro, loop=loop, **options)


class _GuardedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose exits the guard refuses. What debuggers and anyio ask of a coroutine it has too."""

    def __init__(self, inner: Coroutine[Any, Any, Any], guard: _Guard) -> None:
        self._inner = inner
        self._guard = guard

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except SystemExit as error:
            raise self._guard.refuse(error) from error

    def throw(self, *raised: Any) -> Any:
        try:
            return self._inner.throw(*raised)
        except SystemExit as error:
            raise self._guard.refuse(error) from error

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
