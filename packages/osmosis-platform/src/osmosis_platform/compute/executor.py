"""Executes one run from a leased job: prepare, start rollout server and worker, watch both, record the end.

Everything that matters is durable outside this process: finished attempts in the database, a training's journal in the run's
folder. So whatever is killed is simply started again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from osmosis_ai.environments.build import BuildOptions
from osmosis_platform.adapters.base_models import base_model
from osmosis_platform.adapters.shipped import trainer_python
from osmosis_platform.compute.children import Child
from osmosis_platform.compute.failures import RunFailed, disk_full, is_disk_full
from osmosis_platform.compute.hub import fetch_model
from osmosis_platform.compute.plan import RunFolder, RunPlan, materialise, read_plan, run_folder
from osmosis_platform.compute.redaction import Redactor
from osmosis_platform.compute.rollout_server import Place, RolloutServer, check_entrypoint
from osmosis_platform.compute.run_log import RunLog
from osmosis_platform.compute.worker import FAILED, FINISHED, STOPPED, worker_env, worker_spec
from osmosis_platform.context import Platform
from osmosis_platform.errors import PlatformError
from osmosis_platform.evaluation.results import refresh_results
from osmosis_platform.jobs.queue import ClaimedJob, LeaseLost
from osmosis_platform.jobs.runner import GiveBack
from osmosis_platform.runs import tokens
from osmosis_platform.runs.models import TERMINAL, Run, RunAttempt, RunMetric
from osmosis_platform.runs.service import finish
from osmosis_platform.runs.service import log as add_line
from osmosis_platform.runs.status import transition

if TYPE_CHECKING:
    from osmosis_platform.compute.supervisor import Supervisor

log = logging.getLogger("osmosis_platform.runs")

MAX_RESTARTS = 5
MAX_TRIES = 5
STOP_GRACE_SECONDS = 45.0
_LOOK_SECONDS = 0.2
_STOP_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ends."""

    status: str
    error: str | None = None
    error_type: str | None = None


class _Interrupted(Exception):
    """The job was lost, or the platform is stopping: leave the run as it is."""


def execute_run(job: ClaimedJob, platform: Platform) -> None:
    """The handler of run jobs. Raises GiveBack when the platform stops, so that the next process continues the run."""
    assert platform.supervisor is not None
    run_id: str = job.payload["run_id"]
    execution = RunExecution(platform, platform.supervisor, job, run_id)
    plan = execution.begin()
    if plan is None:
        return
    execution.execute(plan)


def run_given_up(session: Session, job: ClaimedJob, reason: str) -> None:
    """The job of a run was given up for good: the run is over with it."""
    run = session.get(Run, job.payload["run_id"])
    if run is not None and run.status not in TERMINAL:
        finish(session, run, "failed", error=f"The run was given up: {reason}", error_type="platform_error")


class RunExecution:
    """One lease's work on one run."""

    def __init__(self, platform: Platform, supervisor: Supervisor, job: ClaimedJob, run_id: str) -> None:
        self.platform = platform
        self.supervisor = supervisor
        self.job = job
        self.run_id = run_id
        self.folder: RunFolder = run_folder(platform, run_id)
        self._stop_seen = 0.0
        self._stop_asked = False

    def begin(self) -> RunPlan | None:
        """Mark the run as running and read its plan; None when there is nothing to do."""
        with self._write() as session:
            run = session.get(Run, self.run_id)
            if run is None or run.status in TERMINAL:
                return None
            if run.status == "pending" and (run.stop_requested_at is not None or self.job.cancelled()):
                finish(session, run, "stopped")
                return None
            transition(run, "running")
            run.phase = "preparing"
            try:
                return read_plan(session, self.platform, run)
            except RunFailed as error:
                finish(session, run, "failed", error=error.message, error_type=error.error_type)
                return None

    def execute(self, plan: RunPlan) -> None:
        """Run to an end, or to an interruption."""
        redact = Redactor(plan.secrets)
        run_log = RunLog(self.platform.database, self.run_id, redact)
        self.supervisor.redactors[self.run_id] = redact
        try:
            outcome = self._outcome(plan, run_log)
        except _Interrupted:
            if self.job.lost():
                return
            run_log.say("The platform is stopping; the run continues when it is back.")
            raise GiveBack from None
        finally:
            run_log.close()
            self.supervisor.redactors.pop(self.run_id, None)
        self._end(outcome, redact)

    def _outcome(self, plan: RunPlan, run_log: RunLog) -> Outcome:
        try:
            materialise(self.platform, plan, self.folder)
            with self.supervisor.environments.use(
                self.folder.code, self._options(plan), run_log.say
            ) as environment:
                place = Place(
                    self.folder.code,
                    self.folder.artifacts,
                    environment,
                    self.supervisor.sandbox,
                    self.platform.settings.rollout_memory_mb * 1024**2,
                )
                run_log.say(
                    f"Importing {plan.entrypoint} of rollout {plan.rollout_name} at commit {plan.commit_sha[:8]}."
                )
                check_entrypoint(self.supervisor.spawner, place, plan.entrypoint, plan.rollout_env)
                return self._supervise(self._with_model(plan, run_log), place, run_log)
        except RunFailed as error:
            self._raise_if_interrupted()
            return (
                Outcome("stopped")
                if self._stop_requested(now=True)
                else Outcome("failed", error.message, error.error_type)
            )
        except (_Interrupted, LeaseLost):
            raise
        except Exception as error:
            return self._unexpected(error)

    def _unexpected(self, error: Exception) -> Outcome:
        """What is not the run's fault is tried again by the job queue, but not for ever."""
        if is_disk_full(error):
            full = disk_full(str(error))
            return Outcome("failed", full.message, full.error_type)
        if self.job.attempt < MAX_TRIES:
            raise error
        log.exception("run %s failed on the platform's side", self.run_id)
        text = error.message if isinstance(error, PlatformError) else f"{type(error).__name__}: {error}"
        return Outcome("failed", f"The platform could not execute the run: {text}", "platform_error")

    def _options(self, plan: RunPlan) -> BuildOptions:
        return replace(plan.options, cancelled=lambda: self._interrupted() or self._stop_requested())

    def _with_model(self, plan: RunPlan, run_log: RunLog) -> RunPlan:
        """The plan with its base model on this machine; one from Hugging Face is fetched and its folder remembered."""
        if plan.base_model is None or plan.base_model[1] is not None:
            return plan
        name = plan.base_model[0]
        folder = fetch_model(
            self.supervisor.spawner,
            trainer_python(self.platform.settings),
            name,
            credentials=plan.rollout_env,
            say=run_log.say,
            interrupted=self._pause_wanted,
        )
        with self._write() as session:
            base_model(session, name).path = str(folder)
        return replace(plan, base_model=(name, str(folder)))

    def _supervise(self, plan: RunPlan, place: Place, run_log: RunLog) -> Outcome:
        """Start both processes, as often as it takes, until the worker's end is the run's."""
        server = RolloutServer(
            self.supervisor.spawner, place, plan.entrypoint, plan.rollout_env, run_log, self._pause_wanted
        )
        restarts, progress = 0, self._progress()
        try:
            while True:
                run_log.say("Starting the rollout server.")
                server.start()
                self._raise_if_interrupted()
                if self._stop_requested(now=True):
                    return Outcome("stopped")
                worker = self._start_worker(plan, server, run_log)
                try:
                    outcome = self._watch(worker, server, run_log)
                finally:
                    worker.kill()
                if outcome is not None:
                    return outcome
                server.stop()
                reached = self._progress()
                restarts = restarts + 1 if reached == progress else 1
                progress = reached
                self._count_restart()
                if restarts > MAX_RESTARTS:
                    return self._crashed(plan, worker)
                run_log.say(
                    f"The worker is started again ({restarts} of {MAX_RESTARTS} without progress).",
                    level="warning",
                )
                self.job.wait_interrupted(min(0.5 * 2 ** (restarts - 1), 10.0))
                self._raise_if_interrupted()
        finally:
            server.stop()

    def _start_worker(self, plan: RunPlan, server: RolloutServer, run_log: RunLog) -> Child:
        hosted = (
            self.supervisor.inference.ensure(interrupted=self._pause_wanted)
            if plan.hosted_model is not None
            else None
        )
        with self._write() as session:
            run = session.get_one(Run, self.run_id)
            token = tokens.issue(run)
            run.phase = "running"
            run.error = run.error_type = None
        worker = self.supervisor.spawner.start(
            self.supervisor.worker_command(plan.kind),
            env=worker_env(),
            cwd=self.folder.work,
            on_line=run_log.output("worker"),
            name="worker",
        )
        worker.send_spec(
            worker_spec(
                plan,
                self.folder,
                api_url=self.supervisor.api_url,
                run_token=token,
                rollout_url=server.url,
                rollout_instance_id=server.instance_id,
                hosted=hosted,
            )
        )
        return worker

    def _watch(self, worker: Child, server: RolloutServer, run_log: RunLog) -> Outcome | None:
        """Follow both until the worker ends; None when it has to be started again."""
        stop_until: float | None = None
        falls, fell = 0, 0
        while (status := worker.poll()) is None:
            self._raise_if_interrupted()
            if stop_until is None and self._stop_requested():
                run_log.say("Stopping: the worker saves what it has.")
                worker.terminate()
                stop_until = time.monotonic() + STOP_GRACE_SECONDS
            if stop_until is not None and time.monotonic() > stop_until:
                run_log.say(
                    f"The worker did not stop within {STOP_GRACE_SECONDS:.0f} s and is ended.",
                    level="warning",
                )
                return Outcome("stopped")
            if (ended := server.ended()) is not None and worker.poll() is None:
                falls, fell = falls + 1, ended
                if falls > MAX_RESTARTS:
                    raise RunFailed(
                        f"The rollout server ended {falls} times. Its last lines:\n{server.last_lines()}",
                        "rollout_server_failed",
                    )
                run_log.say(
                    f"The rollout server ended with status {ended}; it is started again.",
                    level="warning",
                )
                try:
                    server.start()
                except RunFailed:
                    # It may have got a rollout that ends it before it was seen to be healthy: the next look counts that.
                    if server.ended() is None:
                        raise
                    continue
            worker.wait(_LOOK_SECONDS)
        worker.finish_reading()
        if (ended := server.ended()) is not None:
            # It may have ended since the last look, and the worker because of it.
            falls, fell = falls + 1, ended
        outcome = self._meaning(status, worker, run_log)
        if falls and outcome is not None and outcome.error is not None:
            times = "once" if falls == 1 else f"{falls} times"
            text = f"{outcome.error.rstrip('.')}. Meanwhile the rollout server's process ended {times}, last with status {fell}."
            return replace(outcome, error=text)
        return outcome

    def _meaning(self, status: int, worker: Child, run_log: RunLog) -> Outcome | None:
        if status == FINISHED:
            return Outcome("finished")
        if status == STOPPED:
            return Outcome("stopped")
        if status == FAILED:
            error, error_type = self._reported()
            tail = "\n".join(list(worker.tail)[-8:])
            return Outcome("failed", error or f"The worker gave up:\n{tail}", error_type or "run_failed")
        if self._stop_requested(now=True):
            return Outcome("stopped")
        if any("No space left on device" in line or "DISK_FULL" in line for line in worker.tail):
            full = disk_full("the worker could not write")
            return Outcome("failed", full.message, full.error_type)
        run_log.say(f"The worker ended with status {status}.", level="error")
        return None

    def _crashed(self, plan: RunPlan, worker: Child) -> Outcome:
        tail = "\n".join(list(worker.tail)[-8:])
        text = f"The worker crashed {MAX_RESTARTS + 1} times without progress. Its last lines:\n{tail}"
        return Outcome("failed" if plan.kind == "eval" else "crashed", text, "worker_crashed")

    def _end(self, outcome: Outcome, redact: Callable[[str], str]) -> None:
        with self._write() as session:
            run = session.get_one(Run, self.run_id)
            if run.kind == "eval":
                refresh_results(session, run)
            error = redact(outcome.error) if outcome.error is not None else None
            finish(session, run, outcome.status, error=error, error_type=outcome.error_type)
            self._log_end(session, run, outcome, error)
        self.folder.clean(keep_work=outcome.status in ("failed", "crashed"))

    def _log_end(self, session: Session, run: Run, outcome: Outcome, error: str | None) -> None:
        failed = outcome.status in ("failed", "crashed")
        text = f"Run {outcome.status}." if error is None else f"Run {outcome.status}: {error}"
        add_line(session, run.id, text, level="error" if failed else "info", step="runner")

    def _write(self) -> AbstractContextManager[Session]:
        """A transaction that only the holder of the job's lease can commit."""
        return self.supervisor.guarded(self.job)

    def _reported(self) -> tuple[str | None, str | None]:
        with self.platform.database.read() as session:
            run = session.get_one(Run, self.run_id)
            return run.error, run.error_type

    def _count_restart(self) -> None:
        with self._write() as session:
            session.get_one(Run, self.run_id).restarts += 1

    def _progress(self) -> tuple[Any, ...]:
        """Changes whenever the run got somewhere."""
        with self.platform.database.read() as session:
            run = session.get_one(Run, self.run_id)
            attempts = session.scalar(
                select(func.count()).select_from(RunAttempt).where(RunAttempt.run_id == self.run_id)
            )
            step = session.scalar(select(func.max(RunMetric.step)).where(RunMetric.run_id == self.run_id))
            return attempts, step, run.current_step, run.examples_processed

    def _interrupted(self) -> bool:
        return self.job.lost() or self.job.stopping()

    def _pause_wanted(self) -> bool:
        return self._interrupted() or self._stop_requested()

    def _raise_if_interrupted(self) -> None:
        if self._interrupted():
            raise _Interrupted

    def _stop_requested(self, *, now: bool = False) -> bool:
        """Whether somebody asked the run to stop; looked up once a second unless `now`."""
        moment = time.monotonic()
        if not self._stop_asked and (now or moment - self._stop_seen > _STOP_POLL_SECONDS):
            self._stop_seen = moment
            with self.platform.database.read() as session:
                asked = session.scalar(select(Run.stop_requested_at).where(Run.id == self.run_id))
            self._stop_asked = asked is not None
        return self._stop_asked or self.job.cancelled()
