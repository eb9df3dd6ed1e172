"""Real trials: Harbor's queue, the sandbox of this machine, a bundle, a rollout server, and a controller that drives it."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from harbor.models.trial.config import EnvironmentConfig
from harbor.trial.queue import TrialQueue

from osmosis_ai.rollout.backend.harbor import HarborBackend
from osmosis_ai.rollout.controller import RolloutController
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_ai.rollout.server import create_rollout_server

pytestmark = [
    # Harbor's own, at each trial.
    pytest.mark.filterwarnings("ignore:Task.checksum will be deprecated:DeprecationWarning"),
]

SANDBOX = "osmosis_ai.rollout.sandbox:BubblewrapEnvironment"

PROJECT = """
import asyncio, json, pathlib, urllib.request

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowOutput, Grader, get_rollout_context


def ask(messages):
    rollout = get_rollout_context()
    request = urllib.request.Request(
        rollout.chat_completions_url + "/chat/completions",
        json.dumps({"model": "osmosis-rollout", "messages": messages}).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + rollout.api_key},
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


class Multiply(AgentWorkflow):
    async def run(self, ctx):
        wish = (ctx.metadata or {}).get("wish")
        if wish == "raise":
            raise ValueError("as wished")
        if wish == "exit":
            import os
            os._exit(3)
        if wish == "hang":
            pathlib.Path("/logs/artifacts/hanging").touch()
            await asyncio.create_subprocess_exec("sleep", ctx.metadata["marker"])
            ask(ctx.prompt)
        answer = await asyncio.to_thread(ask, ctx.prompt)
        pathlib.Path("answer.txt").write_text(answer["content"])
        given = pathlib.Path("/logs/agent/container_input.json").read_text()
        (ctx.artifacts_dir / "work.json").write_text(given)
        return AgentWorkflowOutput(messages=[*ctx.prompt, answer], metrics={"turns": 1.0})


class Exact(Grader):
    async def grade(self, ctx):
        (ctx.artifacts_dir / "grade.txt").write_text("label " + ctx.label)
        if (ctx.metadata or {}).get("wish") == "ungraded":
            raise KeyError("no rule")
        ctx.set_reward(1.0 if ctx.sample.messages[-1]["content"] == ctx.label else 0.0)
"""


class Policy:
    """Answers with the product of the numbers in the question; a question without numbers is never answered."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Callable[[dict[str, Any]], str] | None = None

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body["messages"])
        if self.answer is None:
            numbers = [int(word) for word in body["messages"][-1]["content"].split() if word.isdigit()]
            if not numbers:
                await asyncio.Event().wait()
            content = str(numbers[0] * numbers[1])
        else:
            content = self.answer(body)
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        return None

    def discard(self, rollout_id: str) -> None:
        pass


@pytest.fixture(scope="module")
def trial_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trial-project")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "trial-agent"\nversion = "1.0"\ndependencies = []\n'
    )
    (root / "trial_agent").mkdir()
    (root / "trial_agent" / "__init__.py").write_text(PROJECT)
    return root


@pytest.fixture
def served(
    tmp_path: Path, task: Path, trial_project: Path, serve: Any
) -> Callable[..., contextlib.AbstractAsyncContextManager[Any]]:
    """``async with served(**arguments of the backend) as s``: ``s.backend``, ``s.policy``, ``s.run(...)`` and ``s.call(...)``."""

    @contextlib.asynccontextmanager
    async def start(*, prewarm: bool = False, **arguments: Any) -> AsyncIterator[Any]:
        state = tmp_path / "sandboxes"
        state.mkdir(exist_ok=True)
        given: dict[str, Any] = {
            "orchestrator": TrialQueue(n_concurrent=2),
            "tasks_dir": task,
            "agent": "trial_agent:Multiply",
            "code_dir": trial_project,
            "trials_dir": tmp_path / "trials",
            "environment_config": EnvironmentConfig(import_path=SANDBOX, kwargs={"state_dir": str(state)}),
        }
        backend = HarborBackend(**(given | arguments))
        app = create_rollout_server(backend=backend, lifespan=backend.prewarm_lifespan() if prewarm else None)
        policy = Policy()
        async with serve(app) as server, RolloutController(rollout_url=server.url, chat=policy) as controller:

            async def run(question: str = "6 x 7", **request: Any) -> Any:
                given = {"label": "42", "rollout_id": "r1", **request}
                prompt = [{"role": "user", "content": question}]
                return await controller.run(RolloutRunRequest(messages=prompt, **given))

            async def call(method: str, path: str, **request: Any) -> Any:
                async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                    return (await client.request(method, path, **request)).json()

            yield SimpleNamespace(backend=backend, policy=policy, run=run, call=call)
        async with asyncio.timeout(120):
            # Harbor does not wait for an environment that stops while its trial is cancelled.
            while list(state.iterdir()):  # noqa: ASYNC110 - files have no event
                await asyncio.sleep(0.01)

    return start


@pytest.fixture(name="wait_until")
def patient(wait_until: Any) -> Any:
    """A busy machine takes long for a trial."""
    return functools.partial(wait_until, timeout_sec=120)


def kept(root: Path, rollout_id: str = "r1") -> dict[str, str]:
    folder = root / rollout_id
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


async def test_a_grader_rewards_what_a_workflow_did_in_its_sandbox(
    served: Any, artifact_root: Path, wait_until: Any
) -> None:
    async with served(grader="trial_agent:Exact") as s:
        good, bad = await asyncio.gather(s.run(), s.run("6 x 8", rollout_id="r2"))
        assert (good.status, good.reward) == ("success", 1.0)
        assert (bad.status, bad.reward) == ("success", 0.0)
        assert good.sample["messages"][-1] == {"role": "assistant", "content": "42"}
        assert good.sample["label"] == "42"
        assert good.sample["metrics"] == {"turns": 1.0}
        await wait_until(lambda: not s.backend.pending)
        status = await s.call("GET", "/rollout/r1/status")
        assert (status["status"], status["reward"]) == ("success", 1.0)
        assert list(s.backend.trials_dir.iterdir()) == []
        await wait_until((artifact_root / "r1" / "trajectory.json").exists)
    files = kept(artifact_root)
    handed = json.loads(files["artifacts/logs/artifacts/work.json"])
    assert handed["label"] is None
    assert handed["api_key"] == "[REDACTED]"
    assert files["artifacts/logs/artifacts/grade.txt"] == "label 42"
    assert "logs/trial.log" in files
    assert "logs/verifier/reward.json" in files
    assert json.loads(files["trajectory.json"])["extra"]["osmosis"]["reward"] == 1.0


async def test_the_tasks_own_tests_come_before_the_grader(served: Any, task: Path) -> None:
    (task / "tests").mkdir()
    (task / "tests" / "test.sh").write_text(
        '#!/bin/bash\n[ "$(cat answer.txt)" = 42 ] && echo 0.75 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n'
    )
    async with served(grader="trial_agent:Exact") as s:
        assert (await s.run()).reward == 0.75
        assert (await s.run("6 x 8", rollout_id="r2")).reward == 0.0


async def test_a_dataset_of_tasks_speaks_for_itself(served: Any, task: Path) -> None:
    (task / "instruction.md").write_text("Multiply 5 by 9 please")
    async with served(grader="trial_agent:Exact", task_mode="dataset", tasks_dir=task.parent) as s:
        result = await s.run("ignored", label="45", metadata={"harbor_task_id": "sum"})
        assert (result.status, result.reward) == ("success", 1.0)
        assert s.policy.asked == [[{"role": "user", "content": "Multiply 5 by 9 please"}]]


async def test_a_task_of_several_steps_is_graded_over_all_of_them(
    served: Any, task: Path, artifact_root: Path, wait_until: Any
) -> None:
    (task / "task.toml").write_text(
        'schema_version = "1.3"\nmulti_step_reward_strategy = "mean"\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    )
    (task / "instruction.md").unlink()
    for name, question, right in (("one", "Multiply 6 by 7", "42"), ("two", "Multiply 6 by 8", "0")):
        step = task / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(question)
        (step / "tests" / "test.sh").write_text(
            f'#!/bin/bash\n[ "$(cat answer.txt)" = {right} ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n'
        )
    async with served(task_mode="dataset", tasks_dir=task.parent) as s:
        result = await s.run("ignored", metadata={"harbor_task_id": "sum"})
        assert (result.status, result.reward) == ("success", 0.5)
        assert [asked[-1]["content"] for asked in s.policy.asked] == ["Multiply 6 by 7", "Multiply 6 by 8"]
        assert result.sample["messages"][-1]["content"] == "48"
        await wait_until(lambda: not s.backend.pending)
    files = kept(artifact_root)
    assert "logs/steps/one/agent/container_result.json" in files
    assert "artifacts/steps/two/logs/artifacts/work.json" in files


async def test_the_oracle_solves_a_task(served: Any, task: Path) -> None:
    for name, text in (
        ("solution/solve.sh", "#!/bin/bash\necho 42 > answer.txt\n"),
        (
            "tests/test.sh",
            '#!/bin/bash\n[ "$(cat answer.txt)" = 42 ] && echo 1 > /logs/verifier/reward.txt\n',
        ),
    ):
        (task / name).parent.mkdir()
        (task / name).write_text(text)
    async with served(agent="oracle") as s:
        result = await s.run()
        assert (result.status, result.reward, result.sample["messages"]) == ("success", 1.0, [])


async def test_a_native_agents_task_brings_the_grader(served: Any, task: Path) -> None:
    (task / "solution").mkdir()
    (task / "solution" / "solve.sh").write_text(
        "#!/bin/bash\n"
        'echo \'{"steps": [{"source": "user", "message": "q"}, {"source": "agent", "message": "42"}]}\''
        " > /logs/agent/trajectory.json\n"
    )
    async with served(agent="oracle", grader="trial_agent:Exact") as s:
        result = await s.run()
        assert (result.status, result.reward) == ("success", 1.0)
        assert result.sample["messages"][-1]["content"] == "42"


@pytest.mark.parametrize(
    ("metadata", "where", "error_type", "said"),
    [
        ({"wish": "raise"}, "agent", "agent_error", "as wished"),
        ({"wish": "exit"}, "agent", "agent_error", "NonZeroAgentExitCodeError"),
        ({"wish": "ungraded"}, "grader", "agent_error", "the verifier ended with: KeyError: 'no rule'"),
    ],
)
async def test_failures_of_user_code(
    served: Any,
    artifact_root: Path,
    wait_until: Any,
    metadata: dict[str, str],
    where: str,
    error_type: str,
    said: str,
) -> None:
    async with served(grader="trial_agent:Exact") as s:
        result = await s.run(metadata=metadata)
        assert (result.status, result.failed_in, result.error_type) == ("failed", where, error_type)
        assert said in result.error_message
        await wait_until((artifact_root / "r1" / "diagnostics.json").exists)
        diagnostics = json.loads(kept(artifact_root)["diagnostics.json"])
        assert diagnostics["phase"] == {"agent": "agent", "grader": "verifier"}[where]
        assert {"environment_setup", "agent_setup", "agent", "total"} <= diagnostics["timings_sec"].keys()
        await wait_until(lambda: not s.backend.pending)
        assert [path.name for path in s.backend.trials_dir.iterdir()] == ["trial-r1"]


async def test_an_agent_without_time_is_stopped(served: Any) -> None:
    async with served(grader="trial_agent:Exact") as s:
        result = await s.run(agent_timeout_sec=0)
        assert (result.status, result.failed_in) == ("failed", "agent")
        assert "AgentTimeoutError" in result.error_message


async def test_a_setup_that_fails_says_so(served: Any, artifact_root: Path, wait_until: Any) -> None:
    async with served(task_mode="dataset") as s:
        result = await s.run(metadata={"harbor_task_id": "nowhere"})
        assert (result.status, result.error_type) == ("failed", "validation_error")
        assert "unknown harbor task id 'nowhere'" in result.error_message
        await wait_until((artifact_root / "r1" / "diagnostics.json").exists)
        diagnostics = json.loads(kept(artifact_root)["diagnostics.json"])
        assert (diagnostics["phase"], diagnostics["harbor_exception_type"]) == ("setup", "ValueError")


async def test_an_environment_that_cannot_start(served: Any, artifact_root: Path, wait_until: Any) -> None:
    broken = EnvironmentConfig(import_path=SANDBOX, kwargs={"state_dir": "/nowhere/at/all"})
    async with served(environment_config=broken, grader="trial_agent:Exact") as s:
        result = await s.run()
        assert (result.status, result.failed_in) == ("failed", "agent")
        await wait_until((artifact_root / "r1" / "diagnostics.json").exists)
        assert json.loads(kept(artifact_root)["diagnostics.json"])["phase"] == "environment_setup"


def processes_with(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


async def test_a_cancelled_rollout_leaves_no_process_and_no_file(
    served: Any, artifact_root: Path, wait_until: Any
) -> None:
    marker = f"98765.{os.getpid()}"
    async with served(grader="trial_agent:Exact") as s:
        metadata = {"wish": "hang", "marker": marker}
        run = asyncio.create_task(s.run("no numbers", metadata=metadata))
        await wait_until(lambda: processes_with(marker) and s.policy.asked)
        assert (await s.call("GET", "/rollout/r1/status"))["status"] == "running"
        answer = await s.call("POST", "/rollout/cancel", json={"prefix": "r"})
        assert answer == {"dispositions": {"r1": "cancelled_running"}}
        await wait_until(lambda: not s.backend.pending and not processes_with(marker))
        assert list(s.backend.trials_dir.iterdir()) == []
        assert list(s.backend.rollouts_dir.iterdir()) == []
        assert not (artifact_root / "r1").exists()
        assert (await s.call("GET", "/rollout/r1/status"))["status"] == "cancelled"
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run


async def test_prewarming_installs_the_agent_before_the_first_rollout(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with served(grader="trial_agent:Exact", prewarm=True) as s:
            assert list(s.backend.trials_dir.iterdir()) == []
            assert (await s.run()).reward == 1.0
    assert [record for record in caplog.records if record.name.startswith("osmosis_ai")] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="the agent works in tmux")
async def test_harbors_terminal_agent_is_trainable(
    served: Any, task: Path, artifact_root: Path, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    (task / "tests").mkdir()
    (task / "tests" / "test.sh").write_text(
        '#!/bin/bash\n[ "$(cat answer.txt)" = 42 ] && echo 1 > /logs/verifier/reward.txt\n'
    )
    async with served(agent="terminus-2", native_agent_kwargs={"record_terminal_session": False}) as s:
        keystrokes = {"keystrokes": "echo 42 > answer.txt\n", "duration": 0.2}
        turns = iter([{"commands": [keystrokes]}, *[{"commands": [], "task_complete": True}] * 2])
        s.policy.answer = lambda body: json.dumps({"analysis": "a", "plan": "p", **next(turns)})
        result = await s.run("Write 42 to answer.txt")
        assert (result.status, result.reward) == ("success", 1.0)
        assert len(s.policy.asked) == 3
        calls = [message["tool_calls"] for message in result.sample["messages"] if "tool_calls" in message]
        assert json.loads(calls[0][0]["function"]["arguments"]) == keystrokes
        await wait_until((artifact_root / "r1" / "trajectory.json").exists)
