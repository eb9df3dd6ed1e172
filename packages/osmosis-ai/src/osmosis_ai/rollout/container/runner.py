"""The two programs of a bundle: they run user code inside a container and leave files for the host."""

import asyncio
import json
import logging
import math
import numbers
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.container.files import (
    AGENT_LOGS_DIR,
    INPUT_FILENAME,
    RESULT_FILENAME,
    REWARD_FILENAME,
    VERIFIER_LOGS_DIR,
    ContainerInput,
    ContainerResult,
    write_reward,
)
from osmosis_ai.rollout.container.trajectories import messages_from_trajectory
from osmosis_ai.rollout.context import AgentWorkflowContext, GraderContext, RolloutContext
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.trajectory.atif import format_trajectory_json
from osmosis_ai.rollout.trajectory.converter import convert_sample_to_trajectory
from osmosis_ai.rollout.trajectory.save import TRAJECTORY_FILENAME
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.output import AgentWorkflowOutput, coerce_output
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.utils.errors import describe_exception
from osmosis_ai.rollout.utils.file_artifacts import (
    GRADER_ARTIFACTS_SNAPSHOT_DIRNAME,
    HARBOR_ARTIFACTS_DIR,
    artifact_tree_state,
    copy_artifact_tree,
)
from osmosis_ai.rollout.utils.imports import resolve_object

logger = logging.getLogger(__name__)

TESTS_DIR = Path("/tests")


def agent_main(workflow: type[AgentWorkflow[Any]] | str, config: Any = None) -> None:
    """The agent program: run the workflow and leave its result; both arguments may be ``module:attr`` texts.

    What user code raises is the result ``failure``, and the process ends well: only the result says how the rollout went.
    """
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(run_agent(resolve_object(workflow), resolve_object(config)))
    except (Exception, SystemExit) as error:
        logger.exception("The workflow failed")
        said = describe_exception(error) if isinstance(error, Exception) else f"the workflow called {error!r}"
        # Text from user code may hold half characters, which JSON refuses.
        message = said.encode(errors="replace").decode()
        failure = ContainerResult(status=RolloutStatus.FAILURE, err_message=message)
        failure.write(AGENT_LOGS_DIR / RESULT_FILENAME)


async def run_agent(workflow_cls: type[AgentWorkflow[Any]], config: Any) -> ContainerResult:
    """Run a workflow on the container's input, write its result and its trajectory, and return the result.

    Raises whatever user code raises, and ``pydantic.ValidationError`` for an output that does not hold what it promises;
    then nothing is written.
    """
    given = ContainerInput.read(AGENT_LOGS_DIR / INPUT_FILENAME)
    rollout = RolloutContext(
        chat_completions_url=given.chat_completions_url, api_key=given.api_key, rollout_id=given.rollout_id
    )
    ctx: AgentWorkflowContext[Any] = AgentWorkflowContext(
        prompt=given.prompt, config=config, metadata=given.metadata, artifacts_dir=_artifacts_dir()
    )
    sample: RolloutSample | None = None
    with rollout:
        output = coerce_output(await workflow_cls(config).run(ctx))
        if output is None:
            sample = await rollout.get_sample()
            output = AgentWorkflowOutput() if sample is None else _projection(sample)
    result = ContainerResult(status=RolloutStatus.SUCCESS, output=output, sample=sample)
    result.write(AGENT_LOGS_DIR / RESULT_FILENAME)
    write_trajectory_json(sample, output, given.rollout_id)
    return result


def write_trajectory_json(
    sample: RolloutSample | None, output: AgentWorkflowOutput | None, rollout_id: str
) -> None:
    """Write the conversation of the sample, else of the output, as an ATIF document for Harbor.

    Nothing is written without messages, or when the sample opted out of being saved. Never raises: the conversation is also
    in the result.
    """
    try:
        recorded = sample or _sample_of(output)
        if recorded is None or recorded.trajectory_messages is None:
            return
        trajectory = convert_sample_to_trajectory(recorded, rollout_id=rollout_id)
        text = format_trajectory_json(trajectory.to_json_dict(exclude_none=True))
        (AGENT_LOGS_DIR / TRAJECTORY_FILENAME).write_bytes(text.encode() + b"\n")
    except Exception:
        logger.warning("Cannot write the trajectory of rollout %s", rollout_id, exc_info=True)


def grader_main(grader: type[Grader] | str, config: Any = None) -> None:
    """The verifier program: grade what the agent left and write the reward; both arguments may be ``module:attr`` texts.

    A rollout without a sample has reward 0. What the grader raises ends the process with an error and without a reward.

    Raises:
        RuntimeError: when the grader gave no reward. A reward is all that leaves a container, so a removed sample needs one too.
    """
    logging.basicConfig(level=logging.INFO)
    # An agent could have left rewards of its own.
    for name in (REWARD_FILENAME, "reward.txt"):
        (VERIFIER_LOGS_DIR / name).unlink(missing_ok=True)
    given = _grader_input()
    sample = load_sample()
    if sample is None:
        logger.warning("Rollout %s left no sample: its reward is 0", given.rollout_id)
        write_reward(0.0)
        return
    ctx = GraderContext(
        label=given.label, sample=sample, metadata=given.metadata, artifacts_dir=_artifacts_dir()
    )
    before = artifact_tree_state(HARBOR_ARTIFACTS_DIR)
    try:
        asyncio.run(resolve_object(grader)(resolve_object(config)).grade(ctx))
    finally:
        _stage_grader_artifacts(before)
    if ctx.sample is None or ctx.sample.reward is None:
        raise RuntimeError("Sample has no reward after grading: call ctx.set_reward(...)")
    write_reward(ctx.sample.reward)


def load_sample() -> RolloutSample | None:
    """What the agent left: its sample, else the messages of its output, else those of the first trajectory file with any.

    Files that an agent left in a broken state count as absent.
    """
    path = AGENT_LOGS_DIR / RESULT_FILENAME
    result: ContainerResult | None = None
    try:
        result = ContainerResult.read(path)
    except FileNotFoundError:
        pass  # an agent of Harbor's own leaves a trajectory instead
    except (OSError, ValidationError) as error:
        logger.warning("Ignoring %s: %s", path, describe_exception(error))
    if result is not None:
        sample = result.sample or _sample_of(result.output)
        if sample is not None:
            return sample
    return next(
        filter(None, map(_sample_of_trajectory, sorted(AGENT_LOGS_DIR.glob("*trajectory*.json")))), None
    )


def _sample_of(output: AgentWorkflowOutput | None) -> RolloutSample | None:
    if output is None or output.messages is None:
        return None
    return RolloutSample(messages=output.messages, metrics=dict(output.metrics))


def _sample_of_trajectory(path: Path) -> RolloutSample | None:
    try:
        messages = messages_from_trajectory(json.loads(path.read_bytes()))
        return RolloutSample(messages=messages) if messages else None
    except (OSError, ValueError) as error:
        logger.warning("Ignoring %s: %s", path, describe_exception(error))
        return None


def _projection(sample: RolloutSample) -> AgentWorkflowOutput:
    metrics = {name: value for name, raw in sample.metrics.items() if (value := _finite(raw)) is not None}
    return AgentWorkflowOutput(messages=[dict(message) for message in sample.messages], metrics=metrics)


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _grader_input() -> ContainerInput:
    path = TESTS_DIR / INPUT_FILENAME
    return ContainerInput.read(path if path.exists() else AGENT_LOGS_DIR / INPUT_FILENAME)


def _artifacts_dir() -> Path | None:
    try:
        HARBOR_ARTIFACTS_DIR.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("No folder for artifacts: %s", error)
        return None
    return HARBOR_ARTIFACTS_DIR


def _stage_grader_artifacts(before: Mapping[str, tuple[int, int, int]]) -> None:
    """Copy the files that the grader changed; the host collected the agent's before grading began."""
    staged = VERIFIER_LOGS_DIR / GRADER_ARTIFACTS_SNAPSHOT_DIRNAME
    try:
        if staged.is_symlink():
            staged.unlink()
        elif staged.exists():
            shutil.rmtree(staged)
        after = artifact_tree_state(HARBOR_ARTIFACTS_DIR)
        if any(before.get(name) != state for name, state in after.items()):
            copy_artifact_tree(
                HARBOR_ARTIFACTS_DIR, staged, destination_root=VERIFIER_LOGS_DIR, baseline=before
            )
    except OSError:
        logger.warning("Cannot keep the grader's artifacts", exc_info=True)
