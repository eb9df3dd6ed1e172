"""What a training run is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from osmosis_trainer.collect.attempt import Attempt, AttemptKey
from osmosis_trainer.collect.collector import Collector, Commit, RunAttempt
from osmosis_trainer.collect.journal import Journal
from osmosis_trainer.collect.stop import StopSignal
from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.errors import StateError
from osmosis_trainer.report import Report
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.state.disk import with_room
from osmosis_trainer.state.run_state import StateStore


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one run. `rows` is the length of the dataset, `concurrency` the most rollouts open at a time,
    `work_dir` the folder that outlives restarts. `tiny_model`: the base model is one of the shipped toys."""

    settings: RunSettings
    engine: Engine
    rows: int
    run_attempt: RunAttempt
    report: Report
    stop: StopSignal
    work_dir: Path
    concurrency: int
    tiny_model: bool = False

    @property
    def journals(self) -> Path:
        return self.work_dir / "journal"

    @property
    def checkpoints(self) -> Path:
        return self.work_dir / "checkpoints"

    @property
    def states(self) -> StateStore:
        return StateStore(self.work_dir / "state")

    async def with_room[Result](self, what: str, write: Callable[[], Awaitable[Result]]) -> Result:
        """Await `write()`, which writes `what`; waits while the disk is full (`state.disk.with_room`)."""

        def log(text: str) -> None:
            self.report.log(text, level="error")

        return await with_room(write, what=what, folder=self.work_dir, stop=self.stop, log=log)

    def collector(self, journal: Journal, *, replay: bool = False) -> Collector:
        """A collector that writes to `journal`, or with `replay` only reads what finished before."""
        run = partial(_missing, journal) if replay else self.run_attempt
        return Collector(run, journal, self.stop, self.concurrency, self.report.log)


async def _missing(journal: Journal, key: AttemptKey, commit: Commit) -> Attempt:
    raise StateError(
        f"{journal.path} lacks attempt {key}, which finished before the state was saved, and the policy that sampled it is "
        "gone; restore the journal from a backup or start a new run"
    )
