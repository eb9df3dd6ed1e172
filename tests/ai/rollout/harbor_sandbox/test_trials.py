"""Trials of Harbor's own queue in the sandbox: the agent and the grader of a bundle, and a policy that answers over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.queue import TrialQueue

from osmosis_ai.packaging import build_bundle, inspect_bundle
from osmosis_ai.rollout.container.files import ContainerInput

# Harbor warns of its own use.
pytestmark = pytest.mark.filterwarnings("ignore:Task.checksum will be deprecated:DeprecationWarning")

SANDBOX = "osmosis_ai.rollout.sandbox:BubblewrapEnvironment"
HARNESS = "osmosis_ai.rollout.backend.harbor.harness_agent:OsmosisHarnessInstalledAgent"
PROJECT = """
import os, subprocess
import httpx
import osmosis_ai
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowOutput, Grader, get_rollout_context

class Workflow(AgentWorkflow):
    async def run(self, ctx):
        rollout = get_rollout_context()
        async with httpx.AsyncClient() as client:
            answer = await client.post(
                f"{rollout.chat_completions_url}/chat/completions",
                json={"model": "osmosis-rollout", "messages": ctx.prompt},
                headers={"authorization": f"Bearer {rollout.api_key}"},
            )
        message = answer.raise_for_status().json()["choices"][0]["message"]
        subprocess.run(["sh", "-c", "echo 42 > /app/out.txt"], check=True)
        (ctx.artifacts_dir / "where.txt").write_text(osmosis_ai.__file__)
        info = {"label": os.path.exists("/tests")and os.listdir("/tests")}
        return AgentWorkflowOutput(messages=[*ctx.prompt, message], metrics={"calls": 1}, info=info)

class Exact(Grader):
    async def grade(self, ctx):
        with open("/app/out.txt") as file:
            done = file.read().strip() == ctx.label
        (ctx.artifacts_dir / "report.txt").write_text(f"graded {ctx.metadata}")
        ctx.set_reward(0.5 * done + 0.5 * (ctx.sample.messages[-1]["content"] == "The answer is 6*7?"))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "multiply"\ndependencies = ["osmosis-ai[server]"]\n'
    )
    (folder / "multiply").mkdir()
    (folder / "multiply" / "__init__.py").write_text(PROJECT)
    return build_bundle(
        folder, workflow="multiply:Workflow", grader="multiply:Exact", bundles_dir=folder / "bundles"
    )


def make_task(folder: Path, given: ContainerInput, wheel: Path) -> Path:
    (folder / "environment").mkdir(parents=True)
    (folder / "environment" / "Dockerfile").write_text("FROM debian:12-slim\nWORKDIR /app\n")
    (folder / "task.toml").write_text(
        'version = "1.0"\n[agent]\ntimeout_sec = 300.0\n[verifier]\ntimeout_sec = 300.0\n'
    )
    (folder / "instruction.md").write_text("6*7?")
    (folder / "tests").mkdir()
    given.write(folder / "tests" / "container_input.json")
    (folder / "tests" / "test.sh").write_text(
        f"#!/bin/bash\nexec /opt/osmosis/venv/bin/{inspect_bundle(wheel).grader_script}\n"
    )
    return folder


def make_trial(tmp_path: Path, name: str, bundle: Path, url: str, **given: Any) -> TrialConfig:
    handed = ContainerInput(
        rollout_id=name,
        label="42",
        metadata={"level": 1},
        chat_completions_url=url,
        api_key="the-key",
        **given,
    )
    task = make_task(tmp_path / f"task-{name}", handed, bundle)
    handed.write(tmp_path / f"{name}.json")
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    return TrialConfig(
        task=TaskConfig(path=task),
        trial_name=f"trial-{name}",
        trials_dir=tmp_path / "trials",
        agent=AgentConfig(
            import_path=HARNESS,
            kwargs={
                "bundle_path": str(bundle),
                "agent_script": inspect_bundle(bundle).agent_script,
                "input_path": str(tmp_path / f"{name}.json"),
            },
        ),
        environment=EnvironmentConfig(import_path=SANDBOX, delete=True, kwargs={"state_dir": str(state)}),
    )


async def test_a_bundle_is_run_and_graded(tmp_path: Path, bundle: Path, policy: Any) -> None:
    queue = TrialQueue(n_concurrent=2)
    trials = [make_trial(tmp_path, name, bundle, policy.url) for name in ("a", "b")]
    results = [await task for task in [queue.submit(trial) for trial in trials]]
    for name, result in zip("ab", results, strict=True):
        assert result.exception_info is None, result.exception_info
        assert result.verifier_result.rewards == {"reward": 1.0}
        trial = tmp_path / "trials" / f"trial-{name}"
        left = json.loads((trial / "agent" / "container_result.json").read_text())
        assert left["status"] == "success"
        assert left["output"]["messages"][-1]["content"] == "The answer is 6*7?"
        # The answer is brought in only after the agent is done.
        assert left["output"]["info"] == {"label": []}
        assert json.loads((trial / "agent" / "trajectory.json").read_text())["trajectory_id"] == name
        kept = trial / "artifacts" / "logs" / "artifacts"
        assert (kept / "where.txt").read_text().startswith("/opt/osmosis/venv/")
        staged = trial / "verifier" / ".osmosis-artifacts"
        assert (staged / "report.txt").read_text() == "graded {'level': 1}"
    assert len(policy.requests) == 2
    assert policy.requests[0].headers["authorization"] == "Bearer the-key"
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_policy_that_refuses_fails_the_agent_and_nothing_is_rewarded(
    tmp_path: Path, bundle: Path, policy: Any
) -> None:
    policy.script = lambda body: (500, {"error": "down"})
    result = await TrialQueue(n_concurrent=1).submit(make_trial(tmp_path, "a", bundle, policy.url))
    assert result.verifier_result.rewards == {"reward": 0.0}
    left = json.loads((tmp_path / "trials" / "trial-a" / "agent" / "container_result.json").read_text())
    assert left["status"] == "failure"
    assert "500" in left["err_message"]


async def test_a_trial_whose_agent_exhausts_the_memory_says_so(
    tmp_path: Path, bundle: Path, policy: Any
) -> None:
    trial = make_trial(tmp_path, "a", bundle, policy.url)
    trial.environment.kwargs["memory_mb"] = 20
    result = await TrialQueue(n_concurrent=1).submit(trial)
    assert "more than 20 MiB of memory" in result.exception_info.exception_message


async def test_a_separate_verifier_has_a_sandbox_of_its_own(tmp_path: Path) -> None:
    task = tmp_path / "task"
    for name, text in {
        "task.toml": 'version = "1.0"\nartifacts = ["/app/out.txt"]\n[verifier.environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write hello.",
        "environment/Dockerfile": "FROM debian:12-slim\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/bash\necho hello > /app/out.txt; echo left > /tmp/trace\n",
        "tests/Dockerfile": "FROM debian:12-slim\nCOPY . /tests\n",
        "tests/test.sh": "#!/bin/bash\n[ ! -e /tmp/trace ] && grep -qx hello /app/out.txt && echo 1 > /logs/verifier/reward.txt\n",
    }.items():
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    result = await TrialQueue(n_concurrent=1).submit(
        TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=tmp_path / "trials",
            agent=AgentConfig(name="oracle"),
            environment=EnvironmentConfig(import_path=SANDBOX, delete=True),
        )
    )
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1.0}
