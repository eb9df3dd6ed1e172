"""Agent and grader programs as they run inside a container, with its folders elsewhere."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    Grader,
    GraderContext,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.container import files, runner
from osmosis_ai.rollout.container.files import ContainerInput, ContainerResult

MESSAGES = [{"role": "user", "content": "6*7?"}, {"role": "assistant", "content": "42"}]


class Container:
    """The folders of a container below a temporary one."""

    def __init__(self, root: Path) -> None:
        self.agent = root / "logs" / "agent"
        self.verifier = root / "logs" / "verifier"
        self.artifacts = root / "logs" / "artifacts"
        self.tests = root / "tests"
        for folder in (self.agent, self.verifier, self.tests):
            folder.mkdir(parents=True)

    def give(self, folder: Path | None = None, **fields: Any) -> None:
        fields = {"rollout_id": "r1", "prompt": [MESSAGES[0]], **fields}
        ContainerInput(**fields).write((folder or self.agent) / files.INPUT_FILENAME)

    def result(self) -> ContainerResult:
        return ContainerResult.read(self.agent / files.RESULT_FILENAME)

    def reward(self) -> Any:
        path = self.verifier / "reward.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Container:
    there = Container(tmp_path)
    monkeypatch.setattr(runner, "AGENT_LOGS_DIR", there.agent)
    monkeypatch.setattr(runner, "VERIFIER_LOGS_DIR", there.verifier)
    monkeypatch.setattr(files, "VERIFIER_LOGS_DIR", there.verifier)
    monkeypatch.setattr(runner, "HARBOR_ARTIFACTS_DIR", there.artifacts)
    monkeypatch.setattr(runner, "TESTS_DIR", there.tests)
    return there


class Recorded(SampleSource):
    def __init__(self, sample: RolloutSample) -> None:
        self.sample = sample

    async def get_sample(self) -> RolloutSample:
        return self.sample


def workflow(result: Any = None, sample: RolloutSample | None = None) -> type[AgentWorkflow[Any]]:
    class Scripted(AgentWorkflow[Any]):
        async def run(self, ctx: AgentWorkflowContext[Any]) -> Any:
            if sample is not None:
                get_rollout_context().set_sample_source(Recorded(sample))
            return result(ctx) if callable(result) else result

    return Scripted


class Exact(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        ctx.set_reward(1.0 if ctx.sample.messages[-1]["content"] == ctx.label else 0.25)


# --- agent ---------------------------------------------------------------------------------------------------------


async def test_the_workflow_sees_its_input_but_not_the_label(container: Container) -> None:
    container.give(metadata={"k": 1}, chat_completions_url="http://x/v1", api_key="key")
    seen: dict[str, Any] = {}

    def look(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        rollout = get_rollout_context()
        seen.update(ctx=ctx, url=rollout.chat_completions_url, key=rollout.api_key, id=rollout.rollout_id)
        (ctx.artifacts_dir / "note.txt").write_text("kept")
        return MESSAGES

    await runner.run_agent(workflow(look), "the config")
    assert seen["ctx"].prompt == [MESSAGES[0]]
    assert seen["ctx"].metadata == {"k": 1}
    assert seen["ctx"].config == "the config"
    assert (seen["url"], seen["key"], seen["id"]) == ("http://x/v1", "key", "r1")
    assert (container.artifacts / "note.txt").read_text() == "kept"


async def test_a_returned_output_leaves_the_sample_empty(container: Container) -> None:
    container.give()
    output = AgentWorkflowOutput(messages=MESSAGES, metrics={"turns": 1}, info={"why": "x"})
    ambient = RolloutSample(messages=[{"role": "user", "content": "recorded"}])
    result = await runner.run_agent(workflow(output, ambient), None)
    assert result.output == output
    assert result.sample is None
    assert container.result() == result


async def test_a_recorded_sample_is_kept_whole_and_projected(container: Container) -> None:
    container.give()
    metrics = {"turns": 2, "flag": True, "text": "x", "nan": float("nan"), "huge": 10**400}
    sample = RolloutSample(messages=MESSAGES, metrics=metrics, trajectory_messages=None)
    result = await runner.run_agent(workflow(None, sample), None)
    assert result.sample is sample
    assert set(result.sample.metrics) == set(metrics)
    assert result.output == AgentWorkflowOutput(messages=MESSAGES, metrics={"turns": 2.0})
    assert container.result().sample.messages == MESSAGES


async def test_no_source_and_nothing_returned_is_an_empty_output(container: Container) -> None:
    container.give()
    result = await runner.run_agent(workflow(), None)
    assert (result.status, result.sample, result.output) == ("success", None, AgentWorkflowOutput())
    assert not (container.agent / "trajectory.json").exists()


async def test_an_output_mutated_to_nan_is_refused(container: Container) -> None:
    container.give()
    output = AgentWorkflowOutput(messages=MESSAGES, metrics={"a": 1.0})
    output.metrics["a"] = float("nan")
    with pytest.raises(ValidationError, match="finite"):
        await runner.run_agent(workflow(output), None)


def raising(error: BaseException) -> Any:
    def act(ctx: Any) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (raising(RuntimeError("the tool broke \ud800")), "the tool broke ?"),
        (raising(SystemExit(3)), "SystemExit(3)"),
        ("text is no output", "run() must return"),
    ],
)
def test_a_failed_workflow_is_a_written_result(
    container: Container, act: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is logged travels between processes of the test run, which cannot carry half a character.
    monkeypatch.setattr(runner.logger, "disabled", True)
    container.give()
    runner.agent_main(workflow(act))
    result = container.result()
    assert result.status == "failure"
    assert message in result.err_message
    assert result.sample is None


def test_programs_take_references_and_report_broken_ones(container: Container) -> None:
    container.give()
    runner.agent_main("no_such_module:Workflow")
    assert "no_such_module" in container.result().err_message


async def test_the_trajectory_is_written_and_an_opt_out_respected(container: Container) -> None:
    container.give()
    await runner.run_agent(workflow(MESSAGES), None)
    document = json.loads((container.agent / "trajectory.json").read_text())
    assert document["trajectory_id"] == "r1"
    assert [step["source"] for step in document["steps"]] == ["user", "agent"]
    (container.agent / "trajectory.json").unlink()
    runner.write_trajectory_json(RolloutSample(messages=MESSAGES, trajectory_messages=None), None, "r1")
    assert not (container.agent / "trajectory.json").exists()


def test_a_trajectory_that_cannot_be_written_is_a_warning(
    container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    (container.agent / "trajectory.json").mkdir()
    runner.write_trajectory_json(RolloutSample(messages=MESSAGES), None, "r1")
    assert "Cannot write the trajectory of rollout r1" in caplog.text


# --- grader --------------------------------------------------------------------------------------------------------


def leave(container: Container, **fields: Any) -> None:
    ContainerResult(**{"status": "success", **fields}).write(container.agent / files.RESULT_FILENAME)


def test_the_grader_reads_the_tests_folder_first(container: Container) -> None:
    container.give(container.agent)
    container.give(container.tests, label="42")
    leave(container, sample=RolloutSample(messages=MESSAGES))
    runner.grader_main(Exact)
    assert container.reward() == {"reward": 1.0}
    (container.tests / files.INPUT_FILENAME).unlink()
    runner.grader_main(Exact)
    assert container.reward() == {"reward": 0.25}


def test_without_a_sample_the_reward_is_zero(container: Container) -> None:
    container.give(container.tests)
    leave(container, status="failure", err_message="x")
    runner.grader_main(Exact)
    assert container.reward() == {"reward": 0.0}


@pytest.mark.parametrize("reward", ["reward.json", "reward.txt"])
def test_a_broken_grader_leaves_no_reward_not_even_a_planted_one(container: Container, reward: str) -> None:
    class Broken(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            (ctx.artifacts_dir / "report.txt").write_text("seen")
            raise LookupError("no reference")

    container.give(container.tests)
    leave(container, sample=RolloutSample(messages=MESSAGES))
    (container.verifier / reward).write_text("1")
    with pytest.raises(LookupError, match="no reference"):
        runner.grader_main(Broken)
    assert not (container.verifier / reward).exists()
    assert (container.verifier / ".osmosis-artifacts" / "report.txt").read_text() == "seen"


@pytest.mark.parametrize("remove", [False, True])
def test_grading_without_a_reward_is_an_error(container: Container, remove: bool) -> None:
    class Silent(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            ctx.sample.remove_sample = remove

    container.give(container.tests)
    leave(container, sample=RolloutSample(messages=MESSAGES))
    with pytest.raises(RuntimeError, match="no reward after grading"):
        runner.grader_main(Silent)
    assert container.reward() is None


def test_only_what_the_grader_changed_is_staged(container: Container) -> None:
    class Reporter(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            if self.config:
                (ctx.artifacts_dir / "sub").mkdir()
                (ctx.artifacts_dir / "sub" / "report.txt").write_text("new")
            ctx.set_reward(1)

    container.give(container.tests)
    leave(container, sample=RolloutSample(messages=MESSAGES))
    container.artifacts.mkdir()
    (container.artifacts / "agent.txt").write_text("old")
    staged = container.verifier / ".osmosis-artifacts"
    staged.mkdir()
    (staged / "stale.txt").write_text("from an earlier grading")
    runner.grader_main(Reporter)
    assert not staged.exists()
    runner.grader_main(Reporter, {"write": True})
    assert [path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file()] == [
        "sub/report.txt"
    ]


# --- what is graded ------------------------------------------------------------------------------------------------


def test_sample_then_output_then_trajectories(container: Container) -> None:
    assert runner.load_sample() is None
    (container.agent / "b.trajectory.json").write_text(json.dumps({"messages": MESSAGES}))
    (container.agent / "a.trajectory.json").write_text('{"steps": "none"}')
    (container.agent / "0.trajectory.json").write_text("{broken")
    (container.agent / "1.trajectory.json").write_text('{"messages": ["not a message"]}')
    assert runner.load_sample().messages == MESSAGES
    leave(container, output=AgentWorkflowOutput(messages=[MESSAGES[0]], metrics={"turns": 1}))
    assert runner.load_sample().messages == [MESSAGES[0]]
    assert runner.load_sample().metrics == {"turns": 1.0}
    leave(container, output=AgentWorkflowOutput(messages=[]), sample=RolloutSample(messages=[MESSAGES[1]]))
    assert runner.load_sample().messages == [MESSAGES[1]]


def test_a_broken_result_counts_as_absent(container: Container) -> None:
    (container.agent / files.RESULT_FILENAME).write_text('{"status": 7}')
    (container.agent / "trajectory.json").write_text(json.dumps({"messages": MESSAGES}))
    assert runner.load_sample().messages == MESSAGES


def test_the_programs_need_the_base_dependencies_only(tmp_path: Path) -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"harbor", "fastapi", "litellm", "agents", "strands", "uvicorn", "pyarrow"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import pathlib
from osmosis_ai.rollout.container import files, runner, trajectories
from osmosis_ai.rollout import RolloutSample
runner.AGENT_LOGS_DIR = pathlib.Path(sys.argv[1])
runner.write_trajectory_json(RolloutSample(messages=[{"role": "user", "content": "hi"}]), None, "r1")
print((runner.AGENT_LOGS_DIR / "trajectory.json").exists())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
