"""The sampling servers: the least busy one that is up, another one when it fails, and the failed one again when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from osmosis_trainer.engines.split.wire import SamplerFaultError, SamplingServer, ServerFacts, ServerLostError
from osmosis_trainer.errors import EngineClosedError, EngineError

# Servers on which one request is tried before it fails.
_TRIES = 6
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


@dataclass(eq=False, slots=True)
class Member:
    """One server and how it is. `open` counts requests in flight."""

    server: SamplingServer
    facts: ServerFacts | None = None
    up: bool = False
    open: int = 0
    reason: str = "it was not asked yet"


class ServerPool:
    """Servers that sample the same policies. `prepare` makes a server that comes up hold what the others hold.

    A server that fails is left alone until it answers again and `prepare` has succeeded. `wait_s` bounds how long a
    request waits while none is up. A SamplerFaultError anywhere ends all sampling: `raise_fault` repeats it.
    """

    def __init__(
        self,
        servers: Sequence[SamplingServer],
        prepare: Callable[[SamplingServer], Awaitable[None]],
        log: Callable[[str], None],
        wait_s: float,
    ) -> None:
        self.members = [Member(server) for server in servers]
        self._prepare = prepare
        self._log = log
        self._wait_s = wait_s
        self._fault: SamplerFaultError | None = None
        self._closed = False
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> list[Member]:
        """The servers that can be asked."""
        return [member for member in self.members if member.up]

    async def open(self) -> None:
        """Ask every server about itself, and prepare it. Raises EngineError when one is not there: a run begins whole."""
        for member in self.members:
            try:
                await self._bring_up(member)
            except ServerLostError as error:
                raise EngineError(f"a sampling server is not ready: {error}") from error

    async def run[T](self, work: Callable[[Member], Awaitable[T]]) -> T:
        """Do the work on a server, on another one when that fails. Raises EngineError when too many fail."""
        for _ in range(_TRIES):
            member = await self.available()
            member.open += 1
            try:
                return await self._asked(member, work(member))
            except ServerLostError:
                continue
            finally:
                member.open -= 1
        raise EngineError(f"{_TRIES} tries on the sampling servers failed: {self._reasons()}")

    async def everywhere(self, work: Callable[[SamplingServer], Awaitable[object]]) -> int:
        """Do the work on every server that is up; returns on how many it was done."""

        async def one(member: Member) -> bool:
            try:
                await self._asked(member, work(member.server))
            except ServerLostError:
                return False
            return True

        return sum(await asyncio.gather(*(one(member) for member in self.up)))

    async def _asked[T](self, member: Member, answer: Awaitable[T]) -> T:
        """The answer of a server; what it does wrong is taken note of."""
        try:
            return await answer
        except ServerLostError as error:
            self._lost(member, error)
            raise
        except SamplerFaultError as error:
            await self._end(error)
            raise
        except (LookupError, TypeError, ValueError) as error:
            fault = SamplerFaultError(f"{member.server.url} answers in another form than expected: {error!r}")
            await self._end(fault)
            raise fault from error

    async def available(self) -> Member:
        """The least busy server that is up; waits for one while none is."""
        try:
            async with asyncio.timeout(self._wait_s), self._changed:
                await self._changed.wait_for(lambda: self.up or self._fault or self._closed)
        except TimeoutError:
            raise EngineError(
                f"no sampling server was up for {self._wait_s:g} s: {self._reasons()}"
            ) from None
        self.raise_fault()
        if self._closed:
            raise EngineClosedError("the engine is closed")
        return min(self.up, key=lambda member: member.open)

    def raise_fault(self) -> None:
        """Raise the fault that ended sampling, if there was one."""
        if self._fault is not None:
            raise self._fault

    async def close(self) -> None:
        """Stop looking after servers and close all connections."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self.members:
            await member.server.close()

    def _lost(self, member: Member, error: ServerLostError) -> None:
        member.reason = str(error)
        if member.up and not self._closed:
            member.up = False
            self._log(f"a sampling server is lost: {error}")
            task = asyncio.create_task(self._revive(member))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _revive(self, member: Member) -> None:
        pause = _PAUSE_S
        while self._fault is None:
            try:
                await self._bring_up(member)
            except ServerLostError as error:
                member.reason = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            except Exception as error:
                # Whatever it is, those who wait for the server must hear of it.
                reason = str(error) if isinstance(error, EngineError) else f"{member.server.url}: {error!r}"
                await self._end(SamplerFaultError(reason))
            else:
                self._log(f"the sampling server {member.server.url} is back")
                return

    async def _bring_up(self, member: Member) -> None:
        member.facts = await member.server.facts()
        await self._prepare(member.server)
        member.up = True
        async with self._changed:
            self._changed.notify_all()

    async def _end(self, fault: SamplerFaultError) -> None:
        self._fault = self._fault or fault
        async with self._changed:
            self._changed.notify_all()

    def _reasons(self) -> str:
        return "; ".join(member.reason for member in self.members if not member.up) or "they failed in turn"
