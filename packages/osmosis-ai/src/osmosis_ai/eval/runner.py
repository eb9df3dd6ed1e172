"""Runs an evaluation: every selected row, n attempts each, every finished attempt kept exactly once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from osmosis_ai.datasets.rows import DatasetRow
from osmosis_ai.errors import OsmosisError
from osmosis_ai.eval.attempt import AttemptRecord
from osmosis_ai.eval.delivery import Delivery
from osmosis_ai.eval.journal import Verdict, VerdictJournal
from osmosis_ai.eval.policy.base import EvalPolicy
from osmosis_ai.eval.results import summarise
from osmosis_ai.eval.selection import select_rows
from osmosis_ai.eval.sink import EvalSink
from osmosis_ai.rollout.controller import RolloutController, RolloutResult, ServerUnavailableError
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_ai.worker.spec import EvalConfig

logger = logging.getLogger(__name__)

DEFAULT_CONCURRENCY = 8
MAX_CONCURRENCY = 256
INVALID_RETRIES = 2
GRACE_SEC = 60.0

_READ_AHEAD_ROWS = 32


class EvalFailedError(OsmosisError):
    """The evaluation cannot go on, and not because of the agent."""

    default_code = "EVAL_FAILED"


class Rows(Protocol):
    """A dataset with random access."""

    def __len__(self) -> int: ...
    def read(self, indices: list[int]) -> list[DatasetRow]: ...


@dataclass(frozen=True, slots=True)
class EvalOutcome:
    """How an evaluation ended; ``summary`` as :func:`osmosis_ai.eval.results.summarise` makes it."""

    status: Literal["finished", "stopped"]
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Attempt:
    row: DatasetRow
    run_index: int


class EvalRunner:
    """One evaluation. ``work_dir`` must be the same when it is run again after a crash; then only what is missing runs.

    ``grace_s`` is how long attempts in hand may go on after a stop. ``trajectory_wait_s`` is how long to wait for the
    trajectory document of an attempt after its verdict. ``max_in_flight`` bounds the attempts at a time instead of the config's
    ``batch_size``; the server's capacity bounds both.
    """

    def __init__(
        self,
        *,
        rows: Rows,
        config: EvalConfig,
        policy: EvalPolicy,
        sink: EvalSink,
        rollout_url: str,
        artifact_root: Path,
        work_dir: Path,
        instance_id: str | None = None,
        grace_s: float = GRACE_SEC,
        trajectory_wait_s: float = 10.0,
        server_wait_s: float = 120.0,
        max_in_flight: int | None = None,
    ) -> None:
        self._rows = rows
        self._config = config.evaluation
        self._policy = policy
        self._sink = sink
        self._grace_s = grace_s
        self._max_in_flight = max_in_flight
        self._selected = select_rows(len(rows), limit=self._config.limit, seed=config.advanced.seed)
        self._journal = VerdictJournal(work_dir / "verdicts.jsonl")
        self._delivery = Delivery(sink, artifact_root, trajectory_wait_s=trajectory_wait_s)
        self._controller = RolloutController(
            rollout_url=rollout_url,
            chat=policy,
            instance_id=instance_id,
            on_result=self._write_verdict,
            start_timeout_s=server_wait_s,
        )
        self._done: dict[tuple[int, int], dict[str, Any]] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._failure: EvalFailedError | None = None
        self._ending = asyncio.Event()

    async def run(self) -> EvalOutcome:
        """Evaluate. Raises :class:`EvalFailedError` and :class:`PolicyUnusableError` with a reason for the user."""
        async with self._controller:
            concurrency = await self._unless_stopped(self._prepare())
            if concurrency is not None:
                self._say_what_is_ahead(concurrency)
                await self._run_missing(concurrency)
        if self._failure is not None:
            raise self._failure
        return self._outcome()

    async def _prepare(self) -> int | None:
        """Everything before the first row; how many attempts to run at a time, None if all are finished."""
        await self._take_up()
        if not self._missing():
            return None
        await self._policy.preflight()
        return await self._concurrency()

    async def _unless_stopped[T](self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of ``work``, or None if a stop came first."""
        working = asyncio.create_task(work)
        stop = asyncio.create_task(self._sink.stop_requested.wait())
        try:
            await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() and not stop.done() else None
        finally:
            working.cancel()
            stop.cancel()
            await asyncio.gather(working, stop, return_exceptions=True)

    async def _take_up(self) -> None:
        """Find out what earlier lives finished, and complete what they had only written down."""
        wanted = {(row, run) for row in self._selected for run in range(self._config.n)}
        async for attempt in self._sink.finished():
            key = (int(attempt["row_index"]), int(attempt["run_index"]))
            if key in wanted:
                self._done[key] = {**attempt, "resumed": True}
        for key, verdict in self._journal.read().items():
            if key in wanted and key not in self._done:
                await self._deliver(verdict, trajectory_wait_s=1.0)
        if self._done:
            self._sink.log(f"{len(self._done)} of {len(wanted)} attempts were already finished")

    def _missing(self) -> int:
        return len(self._selected) * self._config.n - len(self._done)

    async def _concurrency(self) -> int:
        try:
            capacity = await self._controller.capacity()
        except ServerUnavailableError as error:
            raise EvalFailedError(
                f"{error}. Look at the log of the rollout: its entrypoint may not start a server.",
                code="ROLLOUT_SERVER_UNREACHABLE",
            ) from error
        asked = self._config.batch_size
        wanted = self._max_in_flight or (asked * self._config.n if asked else capacity or DEFAULT_CONCURRENCY)
        return max(1, min(wanted, capacity or MAX_CONCURRENCY, MAX_CONCURRENCY))

    def _say_what_is_ahead(self, concurrency: int) -> None:
        rows, n = len(self._rows), self._config.n
        total = len(self._selected) * n
        self._sink.log(
            f"evaluating {len(self._selected)} of {rows} row{'' if rows == 1 else 's'}, {n} attempt{'' if n == 1 else 's'} each, "
            f"{concurrency} at a time"
        )
        self._sink.progress(
            current_step=len(self._done),
            total_steps=total,
            examples_processed=len(self._done),
            total_runs=len(self._done),
            sampled_rows=len(self._selected),
            phase="eval",
        )

    async def _run_missing(self, concurrency: int) -> None:
        attempts: asyncio.Queue[_Attempt | None] = asyncio.Queue(concurrency)
        # Trajectories are waited for outside the slots: the next rollout starts while the last one's files arrive.
        delivering = asyncio.Semaphore(2 * concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                feeder = group.create_task(self._feed(attempts, concurrency))
                workers = [
                    group.create_task(self._work(attempts, delivering, group)) for _ in range(concurrency)
                ]
                watcher = group.create_task(self._end_early([feeder, *workers]))
                await asyncio.wait(workers)
                watcher.cancel()
                feeder.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        # A worker may have been cancelled between a verdict and its delivery.
        for verdict in list(self._verdicts.values()):
            await self._deliver(verdict)

    async def _feed(self, attempts: asyncio.Queue[_Attempt | None], workers: int) -> None:
        async for attempt in self._ahead():
            if (attempt.row.row_index, attempt.run_index) not in self._done:
                await attempts.put(attempt)
        for _ in range(workers):
            await attempts.put(None)

    async def _ahead(self) -> AsyncIterator[_Attempt]:
        for start in range(0, len(self._selected), _READ_AHEAD_ROWS):
            chunk = self._selected[start : start + _READ_AHEAD_ROWS]
            for row in await asyncio.to_thread(self._rows.read, chunk):
                for run_index in range(self._config.n):
                    yield _Attempt(row, run_index)

    async def _end_early(self, tasks: list[asyncio.Task[None]]) -> None:
        """On a stop or a failure: no new attempts, a grace period for those in hand, then the end."""
        stop = asyncio.create_task(self._sink.stop_requested.wait())
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({stop, ending}, return_when=asyncio.FIRST_COMPLETED)
            self._ending.set()
            self._sink.log(
                f"ending: {self._controller.open_rollouts} attempts in hand have {self._grace_s:g} s",
                level="warning",
            )
            feeder, *workers = tasks
            feeder.cancel()
            await asyncio.wait(workers, timeout=self._grace_s)
            for worker in workers:
                worker.cancel()
        finally:
            stop.cancel()
            ending.cancel()

    async def _work(
        self,
        attempts: asyncio.Queue[_Attempt | None],
        delivering: asyncio.Semaphore,
        group: asyncio.TaskGroup,
    ) -> None:
        while not self._ending.is_set():
            attempt = await self._next(attempts)
            if attempt is None:
                return
            verdict = await self._attempt(attempt)
            if verdict is not None:
                await delivering.acquire()
                delivery = group.create_task(self._deliver(verdict))
                delivery.add_done_callback(lambda _: delivering.release())

    async def _next(self, attempts: asyncio.Queue[_Attempt | None]) -> _Attempt | None:
        """The next attempt, or None when there is none left or the run is ending."""
        getting = asyncio.create_task(attempts.get())
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({getting, ending}, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() and not self._ending.is_set() else None
        finally:
            getting.cancel()
            ending.cancel()

    async def _attempt(self, attempt: _Attempt) -> Verdict | None:
        """Run one attempt, again under a fresh id while infrastructure is at fault; None when it has no verdict."""
        row, tries = attempt.row, 0
        while True:
            request = RolloutRunRequest(
                messages=row.messages,
                label=row.label,
                metadata=row.metadata,
                rollout_id=uuid4().hex,
                agent_timeout_sec=self._config.agent_workflow_timeout_s,
                grader_timeout_sec=self._config.grader_timeout_s,
                extra_fields={"row_index": row.row_index, "run_index": attempt.run_index},
            )
            self._policy.begin(request.rollout_id, row_index=row.row_index, run_index=attempt.run_index)
            result = await self._controller.run(request)
            if result.status != "invalid":
                return self._verdicts[result.rollout_id]
            tries += 1
            where = f"row {row.row_index}, attempt {attempt.run_index}"
            self._sink.log(f"{where}: {result.error_type}: {result.error_message}", level="warning")
            if self._ending.is_set():
                return None
            if tries > INVALID_RETRIES:
                self._fail(result, f"{where} could not be run in {tries} tries")
                return None

    def _fail(self, result: RolloutResult, what: str) -> None:
        if self._failure is None:
            reason = f"{what}; the last one ended with {result.error_type}: {result.error_message}"
            self._failure = EvalFailedError(reason, code=(result.error_type or "eval_failed").upper())
        self._ending.set()

    async def _write_verdict(self, request: RolloutRunRequest, result: RolloutResult) -> None:
        """The verdict of a rollout, on disk before the rollout server hears that it arrived."""
        extra = request.extra_fields or {}
        verdict = Verdict(
            row_index=extra["row_index"],
            run_index=extra["run_index"],
            rollout_id=result.rollout_id,
            status=result.status,
            reward=result.reward,
            tokens=self._policy.tokens(result.rollout_id),
            duration_ms=result.duration_ms,
            error_type=result.error_type,
            error_message=result.error_message,
            has_sample=result.sample is not None,
        )
        await self._journal.append(verdict)
        self._verdicts[result.rollout_id] = verdict

    async def _deliver(self, verdict: Verdict, *, trajectory_wait_s: float | None = None) -> None:
        record = await self._delivery.deliver(verdict, trajectory_wait_s=trajectory_wait_s)
        self._verdicts.pop(verdict.rollout_id, None)
        self._done[(record.row_index, record.run_index)] = record.fields()
        self._report(record)

    def _report(self, record: AttemptRecord) -> None:
        total, done = len(self._selected) * self._config.n, len(self._done)
        self._sink.progress(current_step=done, total_steps=total, examples_processed=done, total_runs=done)
        if record.status == "failed":
            where = f"row {record.row_index}, attempt {record.run_index}"
            self._sink.log(f"{where} failed: {record.error_type}: {record.error_message}", level="warning")
        if done == total or done % max(1, total // 10) == 0:
            results = self._summary()["results"]
            score = "no reward yet" if results["score"] is None else f"mean reward {results['score']:.4g}"
            self._sink.log(f"{done}/{total} attempts, {score}, pass rate {results['pass_rate']:.1%}")

    def _summary(self) -> dict[str, Any]:
        return summarise(
            self._done.values(),
            self._config.n,
            self._config.pass_threshold,
            len(self._selected),
            len(self._rows),
        )

    def _outcome(self) -> EvalOutcome:
        stopped = self._missing() > 0
        return EvalOutcome("stopped" if stopped else "finished", self._summary())
