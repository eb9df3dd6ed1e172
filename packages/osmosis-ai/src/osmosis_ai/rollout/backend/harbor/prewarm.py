"""Preparing images and agents before rollouts come."""

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from harbor.models.trial.config import TrialConfig, VerifierConfig

from osmosis_ai.rollout.backend.harbor.diagnostics import trial_exception
from osmosis_ai.rollout.backend.harbor.file_work import uninterrupted
from osmosis_ai.rollout.backend.harbor.preparation import TrialPreparation
from osmosis_ai.rollout.backend.harbor.tasks import HarborTask, TaskMode
from osmosis_ai.rollout.backend.harbor.trial import TRIAL_NAME_PREFIX
from osmosis_ai.rollout.container.files import ContainerInput
from osmosis_ai.rollout.utils.remove_tree import remove_tree

type Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


class Prewarming(TrialPreparation):
    """The part of the backend that runs trials which only install the agent.

    ``prewarm_trials`` holds their names while they run: any text may be the id of a rollout, so only this set tells them apart.
    """

    orchestrator: Any
    prewarm_trials: set[str]
    cleanup_successful_trials: bool

    async def prewarm(self, task_ids: Sequence[str] | None = None) -> None:
        """Build the images of the tasks and install the agent in each, without running it.

        Template mode has one task; dataset mode wants the ids.

        Raises:
            ValueError: in dataset mode without ids.
            RuntimeError: naming every task that failed, and why.
        """
        if self.task_mode == TaskMode.DATASET and not task_ids:
            raise ValueError("prewarm requires task ids in dataset mode: name the task folders to prepare")
        names: Sequence[str | None] = list(task_ids or ()) if self.task_mode == TaskMode.DATASET else [None]
        ends = await asyncio.gather(*map(self._prewarm_one, names), return_exceptions=True)
        failures = []
        for name, end in zip(names, ends, strict=True):
            if isinstance(end, Exception):
                failures.append(f"{name or self.tasks_dir.name}: {end}")
            elif end is not None:
                raise end
        if failures:
            raise RuntimeError(
                f"prewarm failed for {len(failures)} of {len(names)} tasks: {'; '.join(failures)}"
            )

    def prewarm_lifespan(self, task_ids: Sequence[str] | None = None) -> Lifespan:
        """A lifespan for ``create_rollout_server`` that prewarms before the server takes rollouts."""

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            await self.prewarm(task_ids)
            yield

        return lifespan

    def prewarm_trial_config(self, task: HarborTask) -> TrialConfig:
        """A trial that only installs the agent: no verifier, no key, whatever rollout is current."""
        prewarm_id = f"prewarm-{uuid.uuid4().hex[:8]}"
        prompt = [] if self.task_mode == TaskMode.DATASET else [{"role": "user", "content": "prewarm"}]
        task_dir = self.materialize_task(
            task, prewarm_id, ContainerInput(rollout_id=prewarm_id, prompt=prompt)
        )
        if self.native is None:
            agent = self._harness_config(task_dir, self.model_name)
        else:
            agent = self.native.unwired(
                model_name=self.model_name, kwargs=copy.deepcopy(self.native_agent_kwargs)
            )
        agent.override_setup_timeout_sec = self.agent_setup_timeout_sec
        return self._trial_config(
            task_dir, prewarm_id, agent, VerifierConfig(disable=True), install_only=True
        )

    async def _prewarm_one(self, task_id: str | None) -> None:
        task = (
            HarborTask(self.tasks_dir)
            if task_id is None
            else HarborTask.from_dataset(self.tasks_dir, task_id)
        )
        config = await uninterrupted(self.prewarm_trial_config, task)
        name = config.trial_name
        self.prewarm_trials.add(name)
        failed = True
        try:
            result = await self.orchestrator.submit(config)
            exception = trial_exception(result)
            if exception is not None:
                raise RuntimeError(f"{exception.exception_type}: {exception.exception_message}")
            failed = False
        finally:
            self.prewarm_trials.discard(name)
            if self.cleanup_successful_trials:
                self._remove_staging(name.removeprefix(TRIAL_NAME_PREFIX))
                if not failed:
                    remove_tree(self.trials_dir / name)
