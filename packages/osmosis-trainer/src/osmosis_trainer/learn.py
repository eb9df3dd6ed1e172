"""One optimizer step: rows in, new policy out."""

from __future__ import annotations

from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.deadline import within
from osmosis_trainer.errors import NonFiniteLossError
from osmosis_trainer.gateway.ledger import TokenFate
from osmosis_trainer.metrics import Stopwatch, learner_metrics
from osmosis_trainer.parts import Parts
from osmosis_trainer.state.run_state import RunState

ENGINE_DEADLINE_S = 3600.0
NON_FINITE_LIMIT = 3
# Far above what rounding does, in float32 (1e-10) and in bfloat16 (1e-3).
MISMATCH_ALARM = 0.02


async def learn(parts: Parts, state: RunState, step: int, batch: Batch, watch: Stopwatch) -> dict[str, float]:
    """Train on the batch and publish the policy; returns the metrics.

    Without rows nothing is trained. A loss that is not finite skips the step; the NON_FINITE_LIMIT-th in a row is
    raised as NonFiniteLossError.
    """
    advanced = parts.settings.advanced
    rate = parts.settings.learning_rate(step, state.total_steps)
    if not batch.rows:
        parts.report.log(f"step {step}: nothing is trained, {why_empty(batch)}", level="warning")
        return {"train/lr": rate}
    try:
        async with within(ENGINE_DEADLINE_S, f"learning in step {step}"):
            with watch.part("learn"):
                losses = await parts.engine.forward_backward(batch.rows, parts.settings.objective())
                norms = await parts.engine.optim_step(lr=rate, max_grad_norm=advanced.max_grad_norm)
    except NonFiniteLossError as error:
        state.non_finite_in_a_row += 1
        if state.non_finite_in_a_row >= NON_FINITE_LIMIT:
            raise
        parts.report.log(f"step {step} is skipped: {error}", level="warning")
        return {"train/lr": rate}
    state.non_finite_in_a_row = 0
    async with within(ENGINE_DEADLINE_S, f"publishing the policy of step {step}"):
        with watch.part("publish"):
            await parts.engine.publish()
    values = learner_metrics(losses, norms) | {"train/lr": rate}
    mismatch = values.get("train/sampler_mismatch_kl", 0.0)
    if mismatch > MISMATCH_ALARM:
        parts.report.log(
            f"step {step}: sampler and learner disagree about the sampled tokens (mismatch {mismatch:.3g} nats)",
            level="warning",
        )
    return values


def why_empty(batch: Batch) -> str:
    """What became of the tokens of a batch without rows, in words."""
    if batch.ledger.tokens[TokenFate.TRUNCATED]:
        return (
            "every answer was cut off by its token limit: raise [training] max_response_length or the agent's max_tokens, "
            "or set [advanced] mask_truncated = false"
        )
    return "no prompt group had differing rewards"
