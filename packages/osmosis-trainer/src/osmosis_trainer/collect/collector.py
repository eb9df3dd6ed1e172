"""Runs the attempts of a step: samples with retries, prompt groups, and refills for groups that teach nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from osmosis_trainer.collect.attempt import Attempt, AttemptKey, Phase
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.collect.journal import Journal
from osmosis_trainer.collect.order import DataOrder
from osmosis_trainer.collect.stop import StopSignal

logger = logging.getLogger(__name__)

RETRIES = 2
STOP_GRACE_S = 20.0
REPORT_EVERY_S = 30.0
LOGGED_INVALID = 10

# Runs one attempt. It calls `commit` once with the finished attempt, as early as possible: when `commit` returns, the
# attempt is on disk and the rollout server may be told that its result arrived.
Commit = Callable[[Attempt], None]
RunAttempt = Callable[[AttemptKey, Commit], Awaitable[Attempt]]


@dataclass(slots=True)
class Collector:
    """Collects prompt groups through `run_attempt`, at most `concurrency` attempts at a time.

    Attempts start in the order of their keys and finish in any order; results are always in key order, so nothing
    that is trained depends on timing. Refills are decided when a whole wave is finished, for the same reason.
    """

    run_attempt: RunAttempt
    journal: Journal
    stop: StopSignal
    concurrency: int
    log: Callable[[str], None] = logger.info
    _free: asyncio.Semaphore = field(init=False)
    _invalid: int = field(init=False, default=0)
    _open: dict[AttemptKey, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.concurrency)

    async def step(
        self, step: int, order: DataOrder, *, batch: int, samples: int, refill_limit: int
    ) -> list[PromptGroup]:
        """Collect `batch` prompt groups with differing rewards.

        Groups that teach nothing are replaced by those of further rows, at most `refill_limit` times.

        Raises StoppedError when a stop was asked for before everything was finished; what did finish is in the
        journal.
        """
        groups: list[PromptGroup] = []
        missing = batch
        for refill in range(refill_limit + 1):
            rows = order.take(missing)
            wave = await self.groups("train", step, rows, samples, first_slot=len(groups))
            groups += wave
            missing = batch - sum(group.verdict == "trained" for group in groups)
            if not missing or not any(group.scores for group in wave):
                break  # complete, or nothing works just now and further rows would only fail as well
            if refill < refill_limit:
                self.log(
                    f"step {step}: {missing} of {batch} prompt groups taught nothing; trying further rows"
                )
        return groups

    async def groups(
        self, phase: Phase, step: int, rows: Sequence[int], samples: int, *, first_slot: int = 0
    ) -> list[PromptGroup]:
        """Run `samples` samples of every row and return one group per row, in the order of `rows`."""
        places = [(first_slot + place, row) for place, row in enumerate(rows)]
        jobs = [
            self._sample(phase, step, slot, row, index) for slot, row in places for index in range(samples)
        ]
        tries = await self._together(f"{phase} step {step}", jobs)
        groups = []
        for place, (slot, row) in enumerate(places):
            mine = tries[place * samples : (place + 1) * samples]
            groups.append(
                PromptGroup(
                    slot, row, [sample[-1] for sample in mine], [one for sample in mine for one in sample]
                )
            )
        return groups

    async def _sample(self, phase: Phase, step: int, slot: int, row: int, index: int) -> list[Attempt]:
        tries: list[Attempt] = []
        for number in range(RETRIES + 1):
            tries.append(await self._attempt(AttemptKey(phase, step, slot, row, index, number)))
            if not tries[-1].retry:
                break
        return tries

    async def _attempt(self, key: AttemptKey) -> Attempt:
        if key in self.journal.finished:
            return self.journal.finished[key]
        async with self._free:
            self.stop.check()
            self._open[key] = time.monotonic()
            try:
                attempt = await self.run_attempt(key, self.journal.append)
            finally:
                del self._open[key]
        if attempt.outcome == "invalid":
            self._complain(attempt)
        return attempt

    def _complain(self, attempt: Attempt) -> None:
        """Log an invalid attempt, but not hundreds of them."""
        self._invalid += 1
        if self._invalid <= LOGGED_INVALID:
            place = f"row {attempt.row_index}, sample {attempt.sample_index}, try {attempt.attempt + 1}"
            more = (
                ""
                if self._invalid < LOGGED_INVALID
                else " (further ones of this step are counted, not logged)"
            )
            self.log(f"{place}: invalid, {attempt.reason}{more}")

    async def _together(
        self, what: str, jobs: Sequence[Coroutine[None, None, list[Attempt]]]
    ) -> list[list[Attempt]]:
        """Run all jobs. A stop lets open attempts finish for STOP_GRACE_S; an error ends all of them at once."""
        tasks = [asyncio.create_task(job) for job in jobs]
        stopped = asyncio.create_task(self.stop.wait())
        report = asyncio.create_task(self._report(what, tasks))
        try:
            pending: set[asyncio.Task[list[Attempt]]] = set(tasks)
            while pending and not self.stop.requested:
                done, _ = await asyncio.wait({*pending, stopped}, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                if not self.stop.requested:
                    for task in done:
                        await task
            if self.stop.requested:
                await asyncio.wait(tasks, timeout=STOP_GRACE_S)
                if not all(task.done() for task in tasks):
                    self.stop.check()
            return [await task for task in tasks]
        finally:
            for leftover in (*tasks, stopped, report):
                leftover.cancel()
            await asyncio.gather(*tasks, stopped, report, return_exceptions=True)

    async def _report(self, what: str, tasks: Sequence[asyncio.Task[list[Attempt]]]) -> None:
        """Say what is being waited for while a step takes long."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            finished = sum(task.done() for task in tasks)
            oldest = max((time.monotonic() - since for since in self._open.values()), default=0.0)
            self.log(
                f"{what}: {finished} of {len(tasks)} samples finished, {len(self._open)} rollouts open, the oldest for {oldest:.0f} s"
            )
