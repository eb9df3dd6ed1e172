"""A backend that runs each rollout as a trial of Harbor, in an environment of its own."""

import asyncio
import copy
import logging
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from harbor.models.trial.config import EnvironmentConfig
from harbor.trial.hooks import TrialEvent

from osmosis_ai.rollout.backend.base import ExecutionBackend, ResultCallback
from osmosis_ai.rollout.backend.harbor.artifacts import (
    keep_artifacts,
    last_words_of_verifier,
    merge_grader_artifacts,
    retain_trial_logs,
)
from osmosis_ai.rollout.backend.harbor.credentials import CredentialScrubError, scrub_tree
from osmosis_ai.rollout.backend.harbor.diagnostics import trial_exception
from osmosis_ai.rollout.backend.harbor.fetching import TaskFetcher
from osmosis_ai.rollout.backend.harbor.file_work import uninterrupted
from osmosis_ai.rollout.backend.harbor.native_agents import choose_native
from osmosis_ai.rollout.backend.harbor.outcomes import (
    graded_outcome,
    setup_failure,
    without_key,
    workflow_outcome,
)
from osmosis_ai.rollout.backend.harbor.prewarm import Prewarming
from osmosis_ai.rollout.backend.harbor.project import image_requirements, prepare_bundle
from osmosis_ai.rollout.backend.harbor.samples import (
    UnusableTrajectoryError,
    empty_sample,
    native_sample,
    workflow_sample,
)
from osmosis_ai.rollout.backend.harbor.tasks import TaskMode
from osmosis_ai.rollout.backend.harbor.trial import TRIAL_NAME_PREFIX, PendingTrial, trial_name
from osmosis_ai.rollout.backend.harbor.workspace import Workspace
from osmosis_ai.rollout.context import get_rollout_context
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.utils.file_artifacts import default_artifact_root
from osmosis_ai.rollout.utils.imports import ensure_import_path
from osmosis_ai.rollout.utils.remove_tree import remove_tree
from osmosis_ai.rollout.utils.ttl_cache import TtlCache

__all__ = ["MIGRATION_DOCS_URL", "CredentialScrubError", "HarborBackend", "TaskMode"]

logger = logging.getLogger(__name__)

MIGRATION_DOCS_URL = "docs/harbor.md#moving-from-02"
STATUS_RETENTION_SEC = 900.0

_REMOVED_ARGUMENTS = frozenset(
    {
        "_sdk_source_dir",
        "custom_tests_dir",
        "prebuild_local_image",
        "symlink_environment",
        "task_dir",
        "user_code_dir",
        "workflow",
    }
)


class HarborBackend(Prewarming, ExecutionBackend):
    """Runs rollouts as trials of a Harbor queue; docs/harbor.md explains every argument.

    ``orchestrator`` is a ``TrialQueue`` without retries (a controller retries with a fresh id), ``tasks_dir`` one task
    (template mode) or a folder of tasks (dataset mode). ``agent`` is a workflow class, its ``module:Class``, the name of one of
    Harbor's agents, or None with a prebuilt ``bundle``. The reward is that of the task's own ``tests/test.sh``, else of
    ``grader``. At most ``max_queue_depth`` rollouts wait; None is no limit.

    Raises:
        ValueError: for arguments that contradict each other.
        TypeError: for arguments that the backend took before version 0.3.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        removed = sorted(_REMOVED_ARGUMENTS & kwargs.keys())
        if removed:
            raise TypeError(
                f"HarborBackend no longer takes {', '.join(removed)}; what replaces it: {MIGRATION_DOCS_URL}"
            )
        return super().__new__(cls)

    def __init__(
        self,
        *,
        orchestrator: Any,
        tasks_dir: Path,
        agent: type | str | None = None,
        native_agent_kwargs: dict[str, Any] | None = None,
        task_mode: TaskMode | str = TaskMode.TEMPLATE,
        model_name: str = "openai/osmosis-rollout",
        grader: type | str | None = None,
        workflow_config: Any = None,
        grader_config: Any = None,
        code_dir: Path | None = None,
        bundle: Path | None = None,
        environment_config: Any = None,
        trials_dir: Path | None = None,
        cleanup_successful_trials: bool = True,
        patch_dockerfile_with_sdk: bool | None = None,
        agent_setup_timeout_sec: float | None = None,
        max_queue_depth: int | None = None,
    ) -> None:
        if max_queue_depth is not None and max_queue_depth < 1:
            raise ValueError(
                f"max_queue_depth must be at least 1, or None for no limit, got {max_queue_depth}"
            )
        self.native = choose_native(
            agent, kwargs=native_agent_kwargs, workflow_config=workflow_config, bundle=bundle
        )
        self.agent_name = agent if self.native is not None else ensure_import_path(agent)
        self.bundle = prepare_bundle(
            workflow=None if self.native is not None else agent,
            grader=grader,
            workflow_config=workflow_config,
            grader_config=grader_config,
            code_dir=code_dir,
            bundle=bundle,
        )
        if self.native is None and (self.bundle is None or self.bundle.agent_script is None):
            raise ValueError(f"the bundle {bundle} has no agent program, and there is no agent")
        self.sdk_requirements = image_requirements(self.bundle, patch=patch_dockerfile_with_sdk)

        self.orchestrator = orchestrator
        self.fetcher = TaskFetcher()
        self.tasks_dir = Path(tasks_dir)
        self.task_mode = TaskMode(task_mode)
        self.native_agent_kwargs = dict(native_agent_kwargs or {})
        self.model_name = model_name
        self.environment_config = copy.deepcopy(environment_config) or EnvironmentConfig()
        self.cleanup_successful_trials = cleanup_successful_trials
        self.agent_setup_timeout_sec = agent_setup_timeout_sec
        self.max_queue_depth = max_queue_depth
        self._workspace = Workspace(None if trials_dir is None else Path(trials_dir))
        self.rollouts_dir = self._workspace.rollouts_dir
        self.trials_dir = self._workspace.trials_dir
        self.artifact_root = default_artifact_root()

        self.pending: dict[str, PendingTrial] = {}
        self.running = 0
        self.finished: TtlCache[str, dict[str, Any]] = TtlCache(STATUS_RETENTION_SEC)
        self.prewarm_trials: set[str] = set()
        orchestrator.add_hook(TrialEvent.START, self.on_trial_started)
        orchestrator.add_hook(TrialEvent.VERIFICATION_START, self.on_verification_start)
        orchestrator.add_hook(TrialEvent.END, self.on_trial_end)

    # What the server asks.

    @property
    def capture_final_result(self) -> bool:
        return True

    def queued(self) -> int:
        """How many admitted rollouts wait for their trial to start."""
        return max(0, len(self.pending) - self.running)

    def has_capacity(self) -> bool:
        return self.max_queue_depth is None or self.queued() < self.max_queue_depth

    def health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "backend": "harbor",
            "agent": self.agent_name,
            "in_flight": len(self.pending),
            "running": self.running,
            "queued": self.queued(),
            "max_queue_depth": self.max_queue_depth,
        }

    def rollout_status(self, rollout_id: str) -> dict[str, Any] | None:
        pending = self.pending.get(rollout_id)
        if pending is None:
            return self.finished.get(rollout_id)
        if pending.grading:
            return {"status": RolloutStatus.GRADING.value}
        return {"status": (RolloutStatus.RUNNING if pending.started else RolloutStatus.QUEUED).value}

    def record_outcome(
        self, rollout_id: str, status: str, reward: float | None = None, err_message: str | None = None
    ) -> None:
        """Keep the end of a rollout for :meth:`rollout_status`, for 900 seconds."""
        self.finished.set(
            rollout_id,
            {"status": RolloutStatus(status).value, "reward": reward, "err_message": err_message},
        )

    def cancel_rollouts(
        self, ids: Sequence[str] | None = None, prefix: str | None = None, all: bool = False
    ) -> dict[str, str]:
        if ids is not None:
            selected = list(ids)
        else:
            selected = [
                name for name in self.pending if all or (prefix is not None and name.startswith(prefix))
            ]
        return {rollout_id: self._cancel(rollout_id) for rollout_id in selected}

    def _cancel(self, rollout_id: str) -> str:
        pending = self.pending.get(rollout_id)
        if pending is None or pending.task is None or pending.reported:
            return "not_found"
        if not pending.cancel_requested:
            if pending.task.cancel() is False:  # its task is over
                return "not_found"
            pending.cancel_requested = True
        return "cancelled_running" if pending.started else "cancelled_queued"

    async def shutdown(self) -> None:
        """Remove the copies of tasks; trials that were kept stay."""
        await asyncio.to_thread(self._workspace.close)

    # One rollout.

    async def execute(
        self,
        request: ExecutionRequest,
        on_workflow_complete: ResultCallback,
        on_grader_complete: ResultCallback | None = None,
    ) -> None:
        """Run one trial. A rollout that is cancelled reports nothing; a second one of a running id is dropped.

        Raises:
            CredentialScrubError: after both reports, when the rollout's key may remain in the files of its trial.
        """
        if request.id in self.pending:
            logger.warning("Rollout %s is running already; the second request for it is dropped", request.id)
            return
        pending = PendingTrial(
            on_workflow_complete,
            on_grader_complete,
            label=request.label,
            owner=asyncio.current_task(),
            context=get_rollout_context(),
        )
        self.pending[request.id] = pending
        try:
            trial_result = await self._run_trial(request, pending)
        except asyncio.CancelledError:
            if pending.reported:
                await uninterrupted(self.archive_trial, request.id, None, pending)
                raise
            await uninterrupted(self._remove_trial, request.id)
            self.record_outcome(request.id, RolloutStatus.CANCELLED)
            if not pending.cancel_requested or (pending.owner is not None and pending.owner.cancelling()):
                raise
        else:
            await uninterrupted(self.archive_trial, request.id, trial_result, pending)
        finally:
            self.pending.pop(request.id, None)
            if pending.started:
                self.running -= 1
            self._remove_staging(request.id)

    async def _run_trial(self, request: ExecutionRequest, pending: PendingTrial) -> Any:
        """The result of the trial, or None when there was no trial; both are reported."""
        try:
            container_input = self.build_input(request)
            pending.api_key = container_input.api_key
            task = await self.resolve_task(request)
            task_dir = await uninterrupted(self.materialize_task, task, request.id, container_input)
            config = self.build_trial_config(task_dir, request, container_input)
            if self.finished.get(request.id) is not None:
                # What an earlier trial of the same id left would count as this one's.
                await uninterrupted(self._remove_trial_folder, request.id)
            pending.task = asyncio.ensure_future(self.orchestrator.submit(config))
            result = await pending.task
            if not pending.reported:
                await self._end_without_report(config, result, pending)
            return result
        except Exception as error:
            trace = without_key(traceback.format_exc(), pending.api_key)
            logger.warning("Rollout %s could not be run\n%s", request.id, trace)
            await self._report_setup_failure(request.id, pending, error)
            return None

    async def _end_without_report(self, config: Any, result: Any, pending: PendingTrial) -> None:
        # Harbor may finish a trial that was cancelled while it stopped the environment.
        if pending.cancelled:
            raise asyncio.CancelledError
        if result is None:
            raise RuntimeError("the queue returned no result of the trial")
        await self.on_trial_end(SimpleNamespace(config=config, result=result))

    # What Harbor tells of the trials.

    async def on_trial_started(self, event: Any) -> None:
        """The trial left the queue."""
        _, pending = self._pending_of(event)
        if pending is not None and not pending.started:
            pending.started = True
            self.running += 1
            await pending.reached(RolloutStatus.RUNNING)

    async def on_verification_start(self, event: Any) -> None:
        """The agent is done: report it before grading begins. A report that fails is repeated at the end."""
        rollout_id, pending = self._pending_of(event)
        if pending is None or pending.cancelled:
            return
        if not pending.grading:
            pending.grading = True
            await pending.reached(RolloutStatus.GRADING)
        await self._report_workflow(event, rollout_id, pending)

    async def on_trial_end(self, event: Any) -> None:
        """Report the outcome, and keep it for :meth:`rollout_status`. A cancelled trial reports nothing."""
        rollout_id, pending = self._pending_of(event)
        if pending is None or pending.cancelled or _was_cancelled(event.result):
            return
        await self._report_workflow(event, rollout_id, pending)
        outcome = self.grader_outcome(event, rollout_id, pending)
        self._record(rollout_id, outcome)
        await self._report_grader(rollout_id, pending, outcome)
        pending.set_reported()

    def _pending_of(self, event: Any) -> tuple[str, PendingTrial | None]:
        name = event.config.trial_name
        rollout_id = name.removeprefix(TRIAL_NAME_PREFIX)
        if name in self.prewarm_trials or rollout_id in self.prewarm_trials:
            return rollout_id, None
        return rollout_id, self.pending.get(rollout_id)

    def primary_sample(self, event: Any, rollout_id: str, pending: PendingTrial) -> RolloutSample | None:
        """The sample of a trial whose agent did not fail, None when it left none.

        An agent that talks to no policy has an empty one. Native trajectories that make no single conversation are left
        alone, and the trial is kept for inspection.

        Raises:
            ValueError: when the result of the agent program does not hold what it should.
        """
        if self.native is None:
            return workflow_sample(event.result, pending.label)
        sample: RolloutSample | None = None
        try:
            sample = native_sample(self.trials_dir / trial_name(rollout_id), event.result, pending.label)
        except UnusableTrajectoryError as error:
            pending.preserve_trial = True
            logger.warning("Rollout %s: %s", rollout_id, error)
        if sample is None and not self.native.trainable:
            return empty_sample(pending.label)
        return sample

    def grader_outcome(self, event: Any, rollout_id: str, pending: PendingTrial) -> ExecutionResult:
        """How the rollout ended; see :func:`graded_outcome`."""
        return graded_outcome(
            rollout_id,
            event.result,
            lambda: self.primary_sample(event, rollout_id, pending),
            pending.api_key,
            lambda: last_words_of_verifier(self.trials_dir / trial_name(rollout_id)),
        )

    async def _report_workflow(self, event: Any, rollout_id: str, pending: PendingTrial) -> None:
        if pending.workflow_complete_called:
            return
        if pending.workflow_result is None:
            pending.workflow_result = workflow_outcome(
                event.result, lambda: self.primary_sample(event, rollout_id, pending), pending.api_key
            )
        pending.workflow_complete_called = await _delivered(
            rollout_id, pending.on_workflow_complete, pending.workflow_result
        )

    async def _report_grader(self, rollout_id: str, pending: PendingTrial, outcome: ExecutionResult) -> None:
        if pending.grader_complete_called:
            return
        pending.grader_complete_called = pending.on_grader_complete is None or await _delivered(
            rollout_id, pending.on_grader_complete, outcome
        )

    async def _report_setup_failure(self, rollout_id: str, pending: PendingTrial, error: Exception) -> None:
        failure = setup_failure(error, pending.api_key)
        if not pending.workflow_complete_called:
            pending.workflow_result = failure
            pending.workflow_complete_called = await _delivered(
                rollout_id, pending.on_workflow_complete, failure
            )
        if not pending.grader_complete_called:
            self._record(rollout_id, failure)
            await self._report_grader(rollout_id, pending, failure)

    def _record(self, rollout_id: str, outcome: ExecutionResult) -> None:
        succeeded = outcome.status == RolloutStatus.SUCCESS
        reward = outcome.sample.reward if succeeded and outcome.sample is not None else None
        self.record_outcome(rollout_id, outcome.status, reward, outcome.err_message)

    # What is left of a rollout.

    def scrub_trial_credentials(self, rollout_id: str, api_key: str | None) -> None:
        """Remove the rollout's key from the files of its trial; see :func:`scrub_tree`."""
        scrub_tree(self.trials_dir / trial_name(rollout_id), api_key)

    def archive_trial(self, rollout_id: str, trial_result: Any, pending: PendingTrial) -> None:
        """Keep the artifacts and logs of a trial in the rollout's folder and remove the rest of a successful one.

        Raises:
            CredentialScrubError: when the rollout's key may remain in them; then nothing is kept.
        """
        try:
            self.scrub_trial_credentials(rollout_id, pending.api_key)
            folder = self.trials_dir / trial_name(rollout_id)
            merge_grader_artifacts(folder, rollout_id)
            artifacts_kept = keep_artifacts(folder, self.artifact_root, rollout_id)
            logs_kept = retain_trial_logs(self.trials_dir, self.artifact_root, rollout_id)
            disposable = self.cleanup_successful_trials and not pending.preserve_trial
            if disposable and artifacts_kept and logs_kept and self._succeeded(rollout_id, trial_result):
                remove_tree(folder)
            elif folder.exists():
                logger.info("The trial of rollout %s stays at %s", rollout_id, folder)
        finally:
            self._remove_staging(rollout_id)

    def _succeeded(self, rollout_id: str, trial_result: Any) -> bool:
        if trial_result is None or trial_exception(trial_result) is not None:
            return False
        outcome = self.finished.get(rollout_id)
        return outcome is None or outcome["status"] == RolloutStatus.SUCCESS

    def _remove_trial(self, rollout_id: str) -> None:
        self._remove_staging(rollout_id)
        self._remove_trial_folder(rollout_id)

    def _remove_trial_folder(self, rollout_id: str) -> None:
        remove_tree(self.trials_dir / trial_name(rollout_id))


async def _delivered(rollout_id: str, callback: ResultCallback, result: ExecutionResult) -> bool:
    """Whether the callback took the result. A delivery that fails is logged: the trial goes on and is archived."""
    try:
        await callback(result)
    except Exception:
        logger.exception("Could not report on rollout %s", rollout_id)
        return False
    return True


def _was_cancelled(result: Any) -> bool:
    return getattr(getattr(result, "exception_info", None), "exception_type", None) == "CancelledError"
