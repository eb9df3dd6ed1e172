"""The sample of a trial, from what its agent left."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.container.trajectories import messages_from_trajectory
from osmosis_ai.rollout.types.output import AgentWorkflowOutput
from osmosis_ai.rollout.types.sample import RolloutSample

logger = logging.getLogger(__name__)

TRAJECTORY_FILENAME = "trajectory.json"
_TOKEN_METRICS = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")


class UnusableTrajectoryError(ValueError):
    """A native agent left trajectories from which no single conversation follows."""


def agent_metadata(result: Any) -> Mapping[str, Any]:
    """What the agent of the trial, or of its last step with any, left as metadata; empty when it left none."""
    steps = getattr(result, "step_results", None)
    for holder in (result, *reversed(steps if isinstance(steps, list) else [])):
        metadata = getattr(getattr(holder, "agent_result", None), "metadata", None)
        if isinstance(metadata, Mapping) and metadata:
            return metadata
    return {}


def token_metrics(result: Any) -> dict[str, float]:
    """What Harbor counted of tokens and cost, without what it did not count."""
    totals = getattr(result, "compute_token_cost_totals", None)
    if totals is None:
        return {}
    return {name: value for name, value in zip(_TOKEN_METRICS, totals(), strict=True) if value is not None}


def workflow_sample(result: Any, label: str | None) -> RolloutSample | None:
    """The sample in the result that the agent program left, else one of its output's messages, else None.

    The request's ``label`` stands in for an absent one, and what Harbor counted for metrics that the sample lacks.

    Raises:
        ValueError: when the result does not hold what it should.
    """
    metadata = agent_metadata(result)
    if metadata.get("sample") is not None:
        sample = RolloutSample.model_validate(metadata["sample"])
        if sample.label is None:
            sample.label = label
        sample.metrics = {**token_metrics(result), **sample.metrics}
        return sample
    if metadata.get("output") is None:
        return None
    output = AgentWorkflowOutput.model_validate(metadata["output"])
    if output.messages is None:
        return None
    return RolloutSample(
        messages=output.messages, label=label, metrics={**token_metrics(result), **output.metrics}
    )


def native_sample(trial_dir: Path, result: Any, label: str | None) -> RolloutSample | None:
    """The conversation in the one trajectory file that a native agent left, or None when it left none.

    Raises:
        UnusableTrajectoryError: when there are several, or the one cannot be read.
    """
    candidates = [trial_dir / "agent", *sorted(trial_dir.glob("steps/*/agent"))]
    found = [folder / TRAJECTORY_FILENAME for folder in candidates if _is_plain(trial_dir, folder)]
    if not found:
        return None
    if len(found) > 1:
        names = ", ".join(path.relative_to(trial_dir).as_posix() for path in found)
        raise UnusableTrajectoryError(
            f"the agent left {len(found)} trajectories, which are no one conversation: {names}"
        )
    try:
        messages = messages_from_trajectory(json.loads(found[0].read_bytes()))
        if not messages:
            raise ValueError("it has no messages")
        return RolloutSample(messages=messages, label=label, metrics=dict(token_metrics(result)))
    except (OSError, ValueError) as error:
        raise UnusableTrajectoryError(f"the agent's trajectory cannot be used: {error}") from error


def empty_sample(label: str | None) -> RolloutSample:
    """The sample of an agent that talks to no model; no trajectory is saved of it."""
    return RolloutSample(messages=[], trajectory_messages=None, label=label)


def _is_plain(trial_dir: Path, folder: Path) -> bool:
    path = folder / TRAJECTORY_FILENAME
    links = [entry for entry in (path, *path.parents) if trial_dir in entry.parents and entry.is_symlink()]
    return path.is_file() and not links
