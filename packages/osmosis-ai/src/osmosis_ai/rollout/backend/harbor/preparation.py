"""What the trial of a rollout is given: its task, its agent and its limits."""

import copy
import logging
from pathlib import Path
from typing import Any

from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    TaskConfig,
    TrialConfig,
    VerifierConfig,
)

from osmosis_ai.packaging import BundleInfo
from osmosis_ai.rollout.backend.harbor.environment import (
    apply_chat_endpoint_egress,
    apply_managed_skypilot_placement,
    load_task_network_config,
)
from osmosis_ai.rollout.backend.harbor.fetching import TaskFetcher
from osmosis_ai.rollout.backend.harbor.native_agents import NativeAgent
from osmosis_ai.rollout.backend.harbor.tasks import HarborTask, TaskMode, parse_task_ref
from osmosis_ai.rollout.backend.harbor.trial import trial_name
from osmosis_ai.rollout.container.files import INPUT_FILENAME, ContainerInput
from osmosis_ai.rollout.context import get_rollout_context
from osmosis_ai.rollout.types.execution import ExecutionRequest
from osmosis_ai.rollout.utils.remove_tree import remove_tree

logger = logging.getLogger(__name__)

HARNESS_AGENT = "osmosis_ai.rollout.backend.harbor.harness_agent:OsmosisHarnessInstalledAgent"
# Harbor reads a limit of 0 as no limit of this trial's own.
_EXPIRED_SEC = 1e-3


class TrialPreparation:
    """The half of the backend that turns a request into a trial's configuration."""

    fetcher: TaskFetcher
    tasks_dir: Path
    task_mode: TaskMode
    rollouts_dir: Path
    trials_dir: Path
    native: NativeAgent | None = None
    native_agent_kwargs: dict[str, Any]
    model_name: str
    bundle: BundleInfo | None = None
    sdk_requirements: list[str] | None = None
    environment_config: EnvironmentConfig | None = None
    agent_setup_timeout_sec: float | None = None

    def build_input(self, request: ExecutionRequest) -> ContainerInput:
        """What the container is given; the policy's address and key are those of the current rollout context."""
        ambient = get_rollout_context()
        return ContainerInput(
            rollout_id=request.id,
            prompt=[] if self.task_mode == TaskMode.DATASET else request.prompt,
            label=request.label,
            metadata=request.metadata,
            chat_completions_url=ambient.chat_completions_url if ambient is not None else "",
            api_key=ambient.api_key if ambient is not None else None,
        )

    def select_task(self, request: ExecutionRequest) -> HarborTask:
        """The task below ``tasks_dir`` for the request.

        Raises:
            ValueError: in dataset mode, when ``metadata["harbor_task_id"]`` is absent or names none.
        """
        if self.task_mode == TaskMode.TEMPLATE:
            return HarborTask(self.tasks_dir)
        task_id = (request.metadata or {}).get("harbor_task_id")
        if task_id is None:
            raise ValueError(
                "dataset mode needs metadata['harbor_task_id'] (a task folder's name) or metadata['harbor_task']"
            )
        return HarborTask.from_dataset(self.tasks_dir, task_id)

    async def resolve_task(self, request: ExecutionRequest) -> HarborTask:
        """The task that the request brings, else the one that :meth:`select_task` finds."""
        metadata = request.metadata or {}
        ref = metadata.get("harbor_task")
        if ref is None:
            return self.select_task(request)
        fetched: Any = await self.fetch_task(ref, metadata)
        task = fetched if isinstance(fetched, HarborTask) else HarborTask(Path(fetched))
        if self.task_mode == TaskMode.TEMPLATE and request.prompt and task.has_instruction():
            logger.warning(
                "The prompt of rollout %s replaces the instruction that task %s came with; use task_mode='dataset' to keep it",
                request.id,
                ref,
            )
        return task

    async def fetch_task(self, ref: Any, metadata: dict[str, Any]) -> HarborTask:
        """The task named by :func:`parse_task_ref`, downloaded into Harbor's cache where it is not local.

        Raises:
            ValueError: for a name that is none.
            TaskFetchError: when it cannot be downloaded.
        """
        return HarborTask(await self.fetcher.fetch(parse_task_ref(ref, metadata)))

    def materialize_task(self, task: HarborTask, rollout_id: str, container_input: ContainerInput) -> Path:
        """Make the rollout's copy of the task, or nothing at all; see :meth:`HarborTask.materialize`."""
        bundle = self.bundle
        try:
            return task.materialize(
                self.rollouts_dir / rollout_id,
                container_input,
                grader_script=bundle.grader_script if bundle is not None else None,
                # A workflow's program and its grader are installed together.
                grader_wheel=bundle.wheel if bundle is not None and self.native is not None else None,
                sdk_requirements=self.sdk_requirements,
                write_input=self.native is None,
            )
        except BaseException:
            self._remove_staging(rollout_id)
            raise

    def _remove_staging(self, rollout_id: str) -> None:
        remove_tree(self.rollouts_dir / rollout_id)

    def build_agent_config(self, task_dir: Path, container_input: ContainerInput) -> AgentConfig:
        """Harbor's configuration of the agent, pointed at the policy; ``metadata["harbor_model"]`` overrides the model's name.

        Raises:
            ValueError: for a native agent without the policy's address.
        """
        if self.native is None:
            config = self._harness_config(task_dir, self._model_of(container_input))
        else:
            config = self.native.configure(
                model_name=self._model_of(container_input),
                kwargs=copy.deepcopy(self.native_agent_kwargs),
                chat_completions_url=container_input.chat_completions_url,
                api_key=container_input.api_key,
            )
        config.override_setup_timeout_sec = self.agent_setup_timeout_sec
        return config

    def _harness_config(self, task_dir: Path, model_name: str) -> AgentConfig:
        bundle = self.bundle
        if bundle is None:
            raise ValueError("a workflow runs from a bundle, and there is none")
        return AgentConfig(
            import_path=HARNESS_AGENT,
            model_name=model_name,
            kwargs={
                "bundle_path": str(bundle.wheel),
                "agent_script": bundle.agent_script,
                "input_path": str(task_dir / INPUT_FILENAME),
            },
        )

    def _model_of(self, container_input: ContainerInput) -> str:
        model = (container_input.metadata or {}).get("harbor_model")
        if model is None:
            return self.model_name
        if not isinstance(model, str) or not model:
            raise ValueError(f"metadata['harbor_model'] must be the name of a model, got {model!r}")
        return model

    def build_trial_config(
        self,
        task_dir: Path,
        request: ExecutionRequest,
        container_input: ContainerInput,
        agent_config: AgentConfig | None = None,
    ) -> TrialConfig:
        """Harbor's configuration of the rollout's trial; without ``tests/`` nothing is verified."""
        agent = agent_config or self.build_agent_config(task_dir, container_input)
        agent.override_timeout_sec = _limit(request.agent_timeout_sec)
        tested = (task_dir / "tests").is_dir() or any(task_dir.glob("steps/*/tests"))
        config = self._trial_config(
            task_dir,
            request.id,
            agent,
            VerifierConfig(disable=not tested, override_timeout_sec=_limit(request.grader_timeout_sec)),
        )
        apply_chat_endpoint_egress(
            config.environment,
            config.agent,
            task_config=load_task_network_config(task_dir),
            chat_completions_url=container_input.chat_completions_url,
        )
        return config

    def _trial_config(
        self, task_dir: Path, rollout_id: str, agent: AgentConfig, verifier: VerifierConfig, **more: Any
    ) -> TrialConfig:
        return TrialConfig(
            task=TaskConfig(path=task_dir),
            trial_name=trial_name(rollout_id),
            trials_dir=self.trials_dir,
            agent=agent,
            environment=apply_managed_skypilot_placement(
                copy.deepcopy(self.environment_config) or EnvironmentConfig()
            ),
            verifier=verifier,
            **more,
        )


def _limit(timeout_sec: float | None) -> float | None:
    return timeout_sec if timeout_sec is None or timeout_sec > 0 else _EXPIRED_SEC
