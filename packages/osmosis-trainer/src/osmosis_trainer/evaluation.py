"""The validation reward: the held-out rows under the current policy, sampled as in training with seeds of their own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.collect.journal import Journal
from osmosis_trainer.collect.stop import StoppedError
from osmosis_trainer.metrics import Stopwatch, finite, reward_interval
from osmosis_trainer.parts import Parts
from osmosis_trainer.state.run_state import RunState


async def evaluate(
    parts: Parts, state: RunState, step: int, rows: Sequence[int], journal: Journal, watch: Stopwatch
) -> dict[str, float]:
    """Mean reward on `rows` after `step` steps with its 95 % interval. A stop request leaves the evaluation out."""
    if not rows:
        return {}
    samples = parts.settings.validation_samples(len(rows))
    try:
        with watch.part("eval"):
            groups = await parts.collector(journal).groups("eval", step, rows, samples)
    except StoppedError:
        parts.report.log(
            f"the evaluation of step {step} is left out: the run stops", level="warning", step="eval"
        )
        return {}
    values = validation_metrics(groups)
    reward = values.get("eval/validation/reward")
    if reward is None:
        parts.report.log(f"no validation sample of step {step} got a reward", level="error", step="eval")
        return values
    interval = values.get("eval/validation/reward_ci95")
    parts.report.log(
        f"step {step}/{state.total_steps} validation reward {reward:.3f}"
        + (f" ± {interval:.3f}" if interval is not None else "")
        + f" ({len(rows)} rows x {samples})",
        step="eval",
    )
    if state.best is None or reward > state.best["reward"]:
        state.best = {"step": float(step), "reward": reward}
    _note_best(parts, state.best)
    return values


def validation_metrics(groups: Sequence[PromptGroup]) -> dict[str, float]:
    """`eval/validation/*` of one evaluation."""
    samples = [sample for group in groups for sample in group.samples if sample.outcome != "skipped"]
    mean, half = reward_interval([list(group.scores.values()) for group in groups]) or (math.nan, math.nan)
    invalid = sum(sample.outcome == "invalid" for sample in samples)
    return finite(
        {
            "eval/validation/reward": mean,
            "eval/validation/reward_ci95": half,
            "eval/validation/invalid_ratio": invalid / len(samples) if samples else math.nan,
        }
    )


def _note_best(parts: Parts, best: dict[str, float]) -> None:
    """Keep `checkpoints/best.json` beside the checkpoints: the step with the best validation reward so far."""
    parts.checkpoints.mkdir(parents=True, exist_ok=True)
    path = parts.checkpoints / "best.json"
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"step": int(best["step"]), "validation_reward": best["reward"]}))
    draft.rename(path)
