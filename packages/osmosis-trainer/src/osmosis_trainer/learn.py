"""One optimizer step: rows in, new policy out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.collect.gathered import Gathered
from osmosis_trainer.deadline import within
from osmosis_trainer.engines.protocol import Scores
from osmosis_trainer.errors import NonFiniteLossError
from osmosis_trainer.gateway.ledger import TokenFate
from osmosis_trainer.learner.anchor import anchor
from osmosis_trainer.metrics import Stopwatch, learner_metrics
from osmosis_trainer.parts import Parts
from osmosis_trainer.state.run_state import RunState

ENGINE_DEADLINE_S = 3600.0
NON_FINITE_LIMIT = 3
# Far above what rounding does, in float32 (1e-10) and in bfloat16 (1e-3).
MISMATCH_ALARM = 0.02


@dataclass(frozen=True, slots=True)
class Gradient:
    """What `accumulate` left in the engine: `losses` are its numbers, `error` says why there is no gradient."""

    losses: dict[str, float]
    error: NonFiniteLossError | None = None


async def accumulate(parts: Parts, step: int, batch: Batch, watch: Stopwatch) -> Gradient:
    """Compute the gradient of the batch. The policy stays as it is, so others may sample from it meanwhile."""
    if not batch.rows:
        return Gradient({})
    try:
        async with within(ENGINE_DEADLINE_S, f"learning in step {step}"):
            with watch.part("learn"):
                return Gradient(await parts.engine.forward_backward(batch.rows, parts.settings.objective()))
    except NonFiniteLossError as error:
        return Gradient({}, error)


async def update(
    parts: Parts, state: RunState, gathered: Gathered, gradient: Gradient, watch: Stopwatch
) -> dict[str, float]:
    """Apply the gradient and publish the policy; returns the metrics.

    Without rows nothing is trained. A loss that is not finite skips the step; the NON_FINITE_LIMIT-th in a row is
    raised as NonFiniteLossError.
    """
    step, advanced = gathered.step, parts.settings.advanced
    rate = parts.settings.learning_rate(step, state.total_steps)
    if not gathered.batch.rows:
        parts.report.log(f"step {step}: nothing is trained, {why_empty(gathered.batch)}", level="warning")
        return {"train/lr": rate}
    try:
        if gradient.error is not None:
            raise gradient.error
        async with within(ENGINE_DEADLINE_S, f"learning in step {step}"):
            with watch.part("learn"):
                norms = await parts.engine.optim_step(lr=rate, max_grad_norm=advanced.max_grad_norm)
    except NonFiniteLossError as error:
        state.non_finite_in_a_row += 1
        if state.non_finite_in_a_row >= NON_FINITE_LIMIT:
            raise
        parts.report.log(f"step {step} is skipped: {error}", level="warning")
        return {"train/lr": rate}
    state.non_finite_in_a_row = 0
    stale = parts.engine.policy_version > gathered.version
    async with within(ENGINE_DEADLINE_S, f"publishing the policy of step {step}"):
        with watch.part("publish"):
            await parts.engine.publish()
    values = learner_metrics(_told(gradient.losses, gathered, stale=stale), norms) | {"train/lr": rate}
    mismatch = values.get("train/sampler_mismatch_kl", 0.0)
    if mismatch > MISMATCH_ALARM:
        parts.report.log(
            f"step {step}: sampler and learner disagree about the sampled tokens (mismatch {mismatch:.3g} nats)",
            level="warning",
        )
    return values


async def score(parts: Parts, gathered: Gathered) -> None:
    """Keep the learner's log-probabilities of rows that will be learned from by a later policy (`learner.anchor`).

    To be called while the policy is still the one that sampled. Engines that do not score keep the sampler's numbers.
    """
    rows = gathered.batch.rows
    if not rows or "score" not in parts.engine.capabilities:
        return
    async with within(ENGINE_DEADLINE_S, f"scoring the rollouts of step {gathered.step}"):
        scores = await cast(Scores, parts.engine).score(rows, parts.settings.sampling.rollout_temperature)
    use_scores(parts, gathered, scores)


def use_scores(parts: Parts, gathered: Gathered, scores: list[list[float]]) -> None:
    """Let the policy be compared with `scores` instead of the sampler's numbers, and remember how far both are apart."""
    external = parts.settings.external_sampler
    rows, gathered.mismatch = anchor(gathered.batch.rows, scores, external=external)
    gathered.batch, gathered.scores = replace(gathered.batch, rows=rows), scores


def _told(losses: dict[str, float], gathered: Gathered, *, stale: bool) -> dict[str, float]:
    """The learner's numbers. Against rows of an older policy its mismatch is the way the policy has gone since, and only
    scores under that policy tell how far sampler and learner are apart."""
    told = dict(losses)
    if stale:
        told["staleness_kl"] = told.pop("mismatch_kl", 0.0)
        told.pop("logprob_gap_max", None)
    return told | gathered.mismatch


def why_empty(batch: Batch) -> str:
    """What became of the tokens of a batch without rows, in words."""
    if batch.ledger.tokens[TokenFate.TRUNCATED]:
        return (
            "every answer was cut off by its token limit: raise [training] max_response_length or the agent's max_tokens, "
            "or set [advanced] mask_truncated = false"
        )
    return "no prompt group had differing rewards"
