"""One attempt: a rollout of the user's agent against the policy, from the dataset row to the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from osmosis_ai.datasets import DatasetRow
from osmosis_ai.rollout.controller.result import RolloutResult
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_trainer.collect.attempt import Attempt, AttemptKey, Outcome
from osmosis_trainer.collect.collector import Commit
from osmosis_trainer.gateway.policy_gateway import PolicyGateway
from osmosis_trainer.gateway.trace import SessionTrace
from osmosis_trainer.settings import RunSettings

# A rollout server that is full makes a rollout wait; the controller's own deadline begins at its admission.
ADMISSION_DEADLINE_S = 1800.0
_CALLBACK_GRACE_S = 60.0
# Squares of gradients have to fit into float32.
MAX_REWARD = 1e12
_TOO_LONG = "context_length_exceeded"


class Controller(Protocol):
    """The part of `RolloutController` that an attempt needs."""

    async def run(self, request: RolloutRunRequest) -> RolloutResult: ...


@dataclass(slots=True)
class _Open:
    key: AttemptKey
    commit: Commit
    trace: SessionTrace | None = None
    attempt: Attempt | None = None


class RolloutRunner:
    """Runs attempts. `read_row` gives a dataset row by its index.

    `store_result` is to be the controller's `on_result`: it puts the attempt into the journal before the rollout server
    is told that its verdict arrived, so a verdict is either on disk or will be sent again.
    """

    def __init__(
        self, gateway: PolicyGateway, read_row: Callable[[int], DatasetRow], settings: RunSettings
    ) -> None:
        self._gateway = gateway
        self._read_row = read_row
        self._settings = settings
        self._open: dict[str, _Open] = {}

    async def run(self, controller: Controller, key: AttemptKey, commit: Commit) -> Attempt:
        """Run the attempt under a fresh rollout id; never raises for what agent or rollout server do."""
        rollout_id = uuid4().hex
        request = self._request(rollout_id, key)
        self._open_session(rollout_id, key)
        mine = self._open[rollout_id] = _Open(key, commit)
        try:
            result = await self._bounded(controller, request)
            return mine.attempt or self._finish(mine, result)
        finally:
            del self._open[rollout_id]
            if mine.trace is None:
                self._gateway.close(rollout_id)

    async def store_result(self, request: RolloutRunRequest, result: RolloutResult) -> None:
        """Commit a verdict. One for an attempt that nobody waits for any more is dropped."""
        mine = self._open.get(request.rollout_id)
        if mine is not None and mine.attempt is None:
            self._finish(mine, result)

    def _finish(self, mine: _Open, result: RolloutResult) -> Attempt:
        mine.trace = mine.trace or self._gateway.close(result.rollout_id)
        attempt = judge(mine.key, result, mine.trace)
        mine.commit(attempt)
        mine.attempt = attempt
        return attempt

    async def _bounded(self, controller: Controller, request: RolloutRunRequest) -> RolloutResult:
        training = self._settings.training
        longest = training.agent_workflow_timeout_s + training.grader_timeout_s + _CALLBACK_GRACE_S
        deadline = asyncio.timeout(ADMISSION_DEADLINE_S + longest)
        try:
            async with deadline:
                return await controller.run(request)
        except TimeoutError:
            if not deadline.expired():
                raise
            message = f"the rollout server did not take the rollout within {ADMISSION_DEADLINE_S:g} s"
            return RolloutResult(request.rollout_id, "invalid", None, None, "admission_timeout", message)

    def _request(self, rollout_id: str, key: AttemptKey) -> RolloutRunRequest:
        row = self._read_row(key.row_index)
        return RolloutRunRequest(
            messages=row.messages,
            label=row.label,
            metadata=row.metadata,
            rollout_id=rollout_id,
            agent_timeout_sec=self._settings.training.agent_workflow_timeout_s,
            grader_timeout_sec=self._settings.training.grader_timeout_s,
            extra_fields={
                "row_index": key.row_index,
                "run_index": key.sample_index,
                "step": key.step,
                "phase": key.phase,
                "attempt": key.attempt,
            },
        )

    def _open_session(self, rollout_id: str, key: AttemptKey) -> None:
        settings = self._settings
        self._gateway.open(
            rollout_id,
            seed=key.seed(settings.advanced.seed),
            temperature=settings.sampling.rollout_temperature,
            top_p=settings.sampling.rollout_top_p,
            max_prompt_tokens=settings.training.max_prompt_length,
            max_response_tokens=settings.training.max_response_length,
            max_completion_tokens=settings.advanced.max_completion_tokens,
        )


def judge(key: AttemptKey, result: RolloutResult, trace: SessionTrace) -> Attempt:
    """What the result of a rollout says about the policy (docs/training.md, "Which rollouts count")."""
    outcome: Outcome
    error, message = result.error_type, result.error_message
    if result.status == "invalid":
        outcome = "invalid"
    elif not trace.calls and trace.refused.get(_TOO_LONG):
        outcome, error = "skipped", "prompt_too_long"
        message = "the first prompt is longer than [training] max_prompt_length or the model's context"
    elif result.status == "skipped":
        outcome = "skipped"
    elif result.status == "failed":
        outcome = "failed" if trace.calls and result.failed_in == "agent" else "invalid"
    elif trace.calls and abs(reward := result.reward or 0.0) > MAX_REWARD:
        outcome, error = "invalid", "reward_too_large"
        message = f"the reward {reward:.4g} is too large to train on; keep rewards within {MAX_REWARD:g}"
    elif trace.calls:
        outcome = "graded"
    else:
        outcome, error = "invalid", "no_model_calls"
        message = (
            "the agent ended without asking the policy; its model calls must go through the rollout's model"
        )
    return Attempt(
        **key._asdict(),
        outcome=outcome,
        retry=result.status == "invalid",
        reward=result.reward if outcome == "graded" else None,
        error_type=error,
        error_message=message,
        duration_ms=result.duration_ms,
        trace=trace,
    )
