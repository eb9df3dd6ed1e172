"""What a trial is given: its task, its agent, its limits, and nothing that it must not have."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harbor.models.task.id
import harbor.tasks.client
import pytest
from harbor.models.trial.config import EnvironmentConfig

from osmosis_ai.rollout import ExecutionRequest, RolloutContext
from osmosis_ai.rollout.backend.harbor.tasks import HarborTask
from osmosis_ai.rollout.container.files import ContainerInput

type MakeBench = Callable[..., Any]

URL, KEY = "http://policy.example/v1", "sk-0123456789"


def request(**given: Any) -> ExecutionRequest:
    return ExecutionRequest(
        **{"id": "r1", "prompt": [{"role": "user", "content": "6 x 7"}], "label": "42", **given}
    )


def wired(**given: Any) -> ContainerInput:
    return ContainerInput(rollout_id="r1", chat_completions_url=URL, api_key=KEY, **given)


def test_the_input_has_the_current_rollouts_address_and_key(bench: MakeBench) -> None:
    backend = bench().backend
    with RolloutContext(URL, KEY, "r1"):
        given = backend.build_input(request(metadata={"a": 1}))
    assert given == wired(prompt=[{"role": "user", "content": "6 x 7"}], label="42", metadata={"a": 1})
    assert backend.build_input(request()).chat_completions_url == ""
    assert bench(task_mode="dataset").backend.build_input(request()).prompt == []


async def test_tasks_are_found_by_mode_and_request(bench: MakeBench, task: Path, tmp_path: Path) -> None:
    backend = bench().backend
    assert (await backend.resolve_task(request())).path == task
    dataset = bench(task_mode="dataset", tasks_dir=task.parent).backend
    assert (await dataset.resolve_task(request(metadata={"harbor_task_id": "sum"}))).path == task
    with pytest.raises(ValueError, match="harbor_task_id"):
        dataset.select_task(request())
    with pytest.raises(ValueError, match="unknown harbor task id"):
        dataset.select_task(request(metadata={"harbor_task_id": "../sum"}))
    fetched = await dataset.resolve_task(request(metadata={"harbor_task": str(task)}))
    assert fetched.path == task


async def test_a_fetched_task_whose_instruction_is_replaced_is_warned_about(
    bench: MakeBench, task: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {"harbor_task": str(task)}
    await bench(task_mode="dataset").backend.resolve_task(request(metadata=metadata))
    assert not caplog.records
    await bench().backend.resolve_task(request(metadata=metadata))
    assert "replaces the instruction" in caplog.text


@pytest.fixture
def commit(task: Path) -> str:
    """The folder of tasks is a git repository; this is its commit."""
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"],
    ):
        subprocess.run(["git", *arguments], cwd=task.parent, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=task.parent, check=True, capture_output=True, text=True
    )
    return head.stdout.strip()


@pytest.fixture
def task_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (harbor.models.task.id, harbor.tasks.client):
        monkeypatch.setattr(module, "TASK_CACHE_DIR", tmp_path / "task-cache")
    return tmp_path / "task-cache"


@pytest.mark.parametrize("pinned", [True, False])
async def test_a_task_in_a_git_repository(
    bench: MakeBench, task: Path, commit: str, task_cache: Path, pinned: bool
) -> None:
    metadata = {"git_url": f"file://{task.parent}", "git_commit_id": commit if pinned else None}
    fetched = await bench().backend.fetch_task("sum", metadata)
    assert (fetched.path / "instruction.md").read_text() == "Add the numbers.\n"
    assert fetched.path.is_relative_to(task_cache)


async def test_a_branch_is_fetched_once_per_commit_for_any_number_of_rollouts(
    bench: MakeBench, task: Path, commit: str, task_cache: Path
) -> None:
    backend = bench().backend
    metadata = {"git_url": f"file://{task.parent}"}
    found = await asyncio.gather(*(backend.fetch_task("sum", metadata) for _ in range(4)))
    (path,) = {entry.path for entry in found}
    inode = path.stat().st_ino
    (again,) = {(await backend.fetch_task("sum", metadata)).path, path}
    assert again.stat().st_ino == inode


async def test_a_local_task_may_lie_in_the_home(
    bench: MakeBench, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(task.parent))
    assert (await bench().backend.fetch_task("~/sum", {})).path == task.resolve()


async def test_a_repository_that_cannot_be_read_is_named_without_its_credentials(
    bench: MakeBench, tmp_path: Path, task_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    b = bench()
    for commit in (None, "a" * 40):
        url = "https://me:pass-word@127.0.0.1:1/nothing"
        metadata = {"harbor_task": "sum", "git_url": url, "git_commit_id": commit}
        await b.run(metadata=metadata)
    assert len(b.reports.heard) == 4
    for _, result in b.reports.heard:
        assert (
            "cannot fetch the harbor task sum from https://127.0.0.1:1/nothing: fatal: " in result.err_message
        )
        assert result.extra_fields["harbor_exception_type"] == "TaskFetchError"
        assert "pass-word" not in result.err_message
    assert "pass-word" not in caplog.text


def test_a_workflow_runs_from_the_bundle(bench: MakeBench, task: Path) -> None:
    backend = bench(agent_setup_timeout_sec=7).backend
    task_dir = backend.materialize_task(HarborTask(task), "r1", wired(prompt=request().prompt))
    assert task_dir == backend.rollouts_dir / "r1" / "sum"
    config = backend.build_agent_config(task_dir, wired())
    assert config.import_path.endswith(":OsmosisHarnessInstalledAgent")
    assert config.kwargs == {
        "bundle_path": str(backend.bundle.wheel),
        "agent_script": "harbor-agent-agent",
        "input_path": str(task_dir / "container_input.json"),
    }
    assert config.override_setup_timeout_sec == 7
    assert "osmosis-requirements.txt" in (task_dir / "environment" / "Dockerfile").read_text()


def test_a_task_that_cannot_be_prepared_leaves_nothing(bench: MakeBench, task: Path) -> None:
    backend = bench().backend
    (task / "environment" / "Dockerfile").unlink()
    with pytest.raises(ValueError, match="cannot patch Dockerfile"):
        backend.materialize_task(HarborTask(task), "r1", wired())
    assert not (backend.rollouts_dir / "r1").exists()


def test_terminus_is_pointed_at_the_policy(bench: MakeBench, task: Path) -> None:
    kwargs = {"api_base": "http://other", "llm_kwargs": {"api_key": "x", "seed": 1}, "max_turns": 3}
    backend = bench(agent="terminus-2", native_agent_kwargs=kwargs).backend
    config = backend.build_agent_config(task, wired(metadata={"harbor_model": "openai/other"}))
    assert (config.name, config.model_name) == ("terminus-2", "openai/other")
    assert config.kwargs == {
        "api_base": URL,
        "llm_kwargs": {"api_key": KEY, "seed": 1},
        "enable_summarize": False,
        "max_turns": 3,
    }
    assert kwargs["llm_kwargs"] == {"api_key": "x", "seed": 1}
    with pytest.raises(ValueError, match="harbor_model"):
        backend.build_agent_config(task, wired(metadata={"harbor_model": 1}))


def test_mini_swe_is_pointed_at_the_policy(bench: MakeBench, task: Path) -> None:
    backend = bench(
        agent="mini-swe-agent", native_agent_kwargs={"extra_env": {"OPENAI_API_KEY": "x", "A": "b"}}
    ).backend
    config = backend.build_agent_config(task, ContainerInput(rollout_id="r1", chat_completions_url=URL))
    assert config.env == {
        "OPENAI_API_BASE": URL,
        "OPENAI_BASE_URL": URL,
        "OPENAI_API_KEY": "dummy",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "A": "b",
    }
    assert config.kwargs == {}
    assert config.model_name == "openai/osmosis-rollout"


def test_agents_of_models_need_an_address(bench: MakeBench, task: Path) -> None:
    nowhere = ContainerInput(rollout_id="r1")
    for name in ("terminus-2", "mini-swe-agent"):
        with pytest.raises(ValueError, match="chat_completions_url"):
            bench(agent=name).backend.build_agent_config(task, nowhere)
    config = bench(agent="oracle").backend.build_agent_config(task, nowhere)
    assert (config.name, config.kwargs, config.env) == ("oracle", {}, {})


def test_limits_and_verifier_of_a_trial(bench: MakeBench, task: Path) -> None:
    backend = bench(environment_config=EnvironmentConfig(import_path="a:B", kwargs={"x": []})).backend
    config = backend.build_trial_config(task, request(agent_timeout_sec=5, grader_timeout_sec=6), wired())
    assert (config.trial_name, config.trials_dir) == ("trial-r1", backend.trials_dir)
    assert config.agent.override_timeout_sec == 5
    assert config.verifier.override_timeout_sec == 6
    assert config.verifier.disable
    config.environment.kwargs["x"].append(1)
    (task / "tests").mkdir()
    again = backend.build_trial_config(task, request(agent_timeout_sec=0), wired())
    assert not again.verifier.disable
    assert again.environment.kwargs == {"x": []}
    # Harbor takes 0 for the task's own limit; here it means that the time is over.
    assert 0 < again.agent.override_timeout_sec < 0.01
    assert again.verifier.override_timeout_sec is None


def test_the_policys_host_joins_a_tasks_list(bench: MakeBench, task: Path) -> None:
    (task / "task.toml").write_text(
        'schema_version = "1.3"\n[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.example"]\n'
    )
    config = bench().backend.build_trial_config(task, request(), wired())
    assert config.environment.extra_allowed_hosts == ["policy.example"]
    assert config.agent.extra_allowed_hosts == ["policy.example"]


def test_prewarming_knows_no_rollout(bench: MakeBench, task: Path) -> None:
    with RolloutContext(URL, KEY, "r1"):
        for agent in ("harbor_agent:Solver", "terminus-2", "mini-swe-agent"):
            backend = bench(agent=agent).backend
            config = backend.prewarm_trial_config(HarborTask(task))
            assert config.trial_name.startswith("trial-prewarm-")
            assert config.install_only
            assert config.verifier.disable
            staged = backend.rollouts_dir / config.trial_name.removeprefix("trial-")
            texts = [path.read_text() for path in staged.rglob("*") if path.is_file()]
            assert not any(
                secret in text for text in (*texts, config.model_dump_json()) for secret in (URL, KEY)
            )
