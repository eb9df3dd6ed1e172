"""The pages on the SDK: their code runs as printed, their links lead somewhere, their figures are those of the code."""

import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    ExecutionRequest,
    ExecutionResult,
    Grader,
    GraderContext,
    LocalBackend,
    RolloutContext,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.worker import rollout_files

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (
    "agent-workflows.md",
    "execution-backends.md",
    "graders.md",
    "migration.md",
    "openai-agents.md",
    "rollouts.md",
    "strands.md",
    "trajectories.md",
)
PROMPT = [{"role": "user", "content": "6 times 7?"}]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import all Python code of a page as one module."""
    loaded: list[str] = []

    def load_page(page: str) -> ModuleType:
        name = f"page_{Path(page).stem.replace('-', '_')}"
        path = tmp_path / f"{name}.py"
        path.write_text("\n\n".join(BLOCK.findall((DOCS / page).read_text())))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loaded.append(name)
        spec.loader.exec_module(module)
        return module

    yield load_page
    for name in loaded:
        sys.modules.pop(name, None)


def classes_of(module: ModuleType, kind: type) -> dict[str, Any]:
    """The concrete classes of a kind that a page defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    }


@pytest.fixture
def execute(policy: Any, artifact_root: Path) -> Callable[..., Any]:
    """Run a backend's rollout against the policy; its results."""

    async def run(backend: Any, *, label: str | None = "42", prompt: Any = PROMPT) -> list[ExecutionResult]:
        results: list[ExecutionResult] = []

        async def keep(result: ExecutionResult) -> None:
            results.append(result)

        with RolloutContext(f"{policy.url}/v1", "k", "r1"):
            await backend.execute(ExecutionRequest(id="r1", prompt=prompt, label=label), keep, keep)
        return results

    return run


def sample_of(*messages: dict[str, Any]) -> RolloutSample:
    return RolloutSample(messages=list(messages))


async def grade(grader: Any, **context: Any) -> GraderContext:
    ctx = GraderContext(**context)
    await grader.grade(ctx)
    return ctx


STRANDS_SAMPLE = [
    {"role": "user", "content": [{"text": "q"}]},
    {"role": "assistant", "content": [{"toolUse": {"name": "multiply", "toolUseId": "1", "input": {}}}]},
    {"role": "assistant", "content": [{"text": "42"}]},
]
AGENTS_SAMPLE = [
    {"role": "user", "content": "q"},
    {"type": "function_call", "name": "multiply", "call_id": "1", "arguments": "{}"},
    {"role": "assistant", "type": "message", "content": [{"type": "output_text", "text": "42"}]},
]
CHAT_SAMPLE = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "multiply"}}]},
    {"role": "assistant", "content": "42"},
]


async def test_every_workflow_of_the_workflow_page_runs(load: Any, execute: Any, artifact_root: Path) -> None:
    page = load("agent-workflows.md")
    workflows = classes_of(page, AgentWorkflow)
    assert set(workflows) == {"Answer", "TwoTries", "Recorded", "Search", "Logged"}
    for name, workflow in workflows.items():
        backend = page.backend if name == "Search" else LocalBackend(workflow=workflow)
        result = (await execute(backend))[0]
        assert (name, result.status, result.err_message) == (name, RolloutStatus.SUCCESS, None)
        assert result.sample is not None
    assert page.backend.workflow_config.concurrency.max_concurrent == 32
    assert (artifact_root / "r1" / "artifacts" / "run.log").read_text() == "started\n"


async def test_messages_that_a_workflow_returns_keep_usage(load: Any, execute: Any, policy: Any) -> None:
    result = (await execute(LocalBackend(workflow=load("agent-workflows.md").TwoTries)))[0]
    assert [message["role"] for message in result.sample.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert result.sample.messages[1]["usage"]["prompt_tokens"] == 11
    assert result.sample.metrics == {"tries": 2}
    assert {request.body["model"] for request in policy.requests} == {"osmosis-rollout"}


@pytest.mark.parametrize("messages", [STRANDS_SAMPLE, AGENTS_SAMPLE, CHAT_SAMPLE])
async def test_graders_read_all_shapes(load: Any, messages: Any, tmp_path: Path) -> None:
    page = load("graders.md")
    assert set(classes_of(page, Grader)) == {"ExactMatch", "UsedTools", "Judge", "Weighted"}

    ctx = await grade(page.ExactMatch(), label="42 ", sample=sample_of(*messages))
    assert ctx.sample.reward == 1.0
    ctx = await grade(page.ExactMatch(), label="41", sample=sample_of(*messages))
    assert ctx.sample.reward == 0.0
    with pytest.raises(ValueError, match="no sample"):
        await grade(page.ExactMatch(), label="42")

    wanted = {"tools": ["multiply", "search"]}
    ctx = await grade(page.UsedTools(), metadata=wanted, sample=sample_of(*messages))
    assert (ctx.sample.reward, ctx.sample.metrics) == (0.5, {"tools": 1})
    ctx = await grade(page.UsedTools(), sample=sample_of(*messages))
    assert (ctx.sample.reward, ctx.sample.remove_sample) == (None, True)

    ctx = await grade(
        page.Weighted(page.weights_config), label="42", sample=sample_of(*messages), artifacts_dir=tmp_path
    )
    assert ctx.sample.reward == pytest.approx(1.0)
    assert "answered=1.0" in (tmp_path / "grade.txt").read_text()
    assert (
        await grade(page.Weighted(), label="41", sample=sample_of(*messages))
    ).sample.reward == pytest.approx(0.2)


async def test_judge_of_the_grader_page(load: Any, policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy.script = lambda body: (200, {"role": "assistant", "content": "0.75"})
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", policy.url)
    ctx = await grade(load("graders.md").Judge(), label="42", sample=sample_of(*CHAT_SAMPLE))
    assert ctx.sample.reward == 0.75
    assert "Answer: 42" in policy.requests[0].body["messages"][0]["content"]


def scripted(name: str) -> Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]:
    """A policy for one workflow of a framework's page: the call that the workflow is about, then an answer with 42."""
    calls = {
        "Delegating": ("ask_expert", {"question": "6 times 7?", "input": "6 times 7?"}),
        "HandedOver": ("transfer_to_expert", {}),
        "Structured": ("Product", {"value": 42}),
    }

    def script(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        tool, arguments = calls.get(name, ("multiply", {"a": 6, "b": 7}))
        offered = [offer["function"]["name"] for offer in body.get("tools") or []]
        if "response_format" in body:
            return 200, {"role": "assistant", "content": '{"value": 42}'}
        if tool in offered and body["messages"][-1]["role"] != "tool":
            function = {"name": tool, "arguments": json.dumps(arguments)}
            return 200, {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            }
        return 200, {"role": "assistant", "content": "It is 42."}

    return script


EXPECTED_CALLS = {"Multiply": 2, "Delegating": 3, "McpTools": 2, "HandedOver": 2}


@pytest.mark.parametrize("page_name", ["strands.md", "openai-agents.md"])
async def test_every_workflow_of_a_framework_page_is_rewarded(
    page_name: str,
    load: Any,
    execute: Any,
    policy: Any,
    artifact_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Path(__file__).parent / "integrations" / "mcp_server.py"
    (tmp_path / "calculator_server.py").write_text(server.read_text())
    monkeypatch.chdir(tmp_path)
    page = load(page_name)
    workflows = classes_of(page, AgentWorkflow)
    assert set(workflows) >= {"Multiply", "Delegating", "McpTools", "Structured"}
    for name, workflow in workflows.items():
        policy.requests.clear()
        policy.script = scripted(name)
        backend = (
            page.backend if name == "Multiply" else LocalBackend(workflow=workflow, grader=page.Contains)
        )
        completion, graded = await execute(backend)
        assert (name, completion.err_message) == (name, None)
        if name != "Structured":
            assert (name, graded.sample.reward) == (name, 1.0)
            assert (name, len(policy.requests)) == (name, EXPECTED_CALLS[name])
    product = artifact_root / "r1" / "artifacts" / "product.json"
    assert json.loads(product.read_text()) == {"value": 42}


async def test_backends_of_the_backend_page(
    load: Any, execute: Any, policy: Any, serve: Any, controller: Any, wait_until: Any
) -> None:
    page = load("execution-backends.md")
    completion, graded = await execute(page.backend, label="6 times 7?")
    assert (completion.status, graded.sample.reward) == (RolloutStatus.SUCCESS, 1.0)
    assert (await page.one_rollout("hello", "hello")).sample.reward == 1.0
    assert (await page.one_rollout("hello", "bye")).sample.reward == 0.0

    reversing = page.Reversing()
    _, graded = await execute(reversing, label="?7 semit 6")
    assert graded.sample.reward == 1.0
    assert (reversing.has_capacity(), reversing.rollout_status("r1"), reversing.health()["status"]) == (
        True,
        None,
        "ok",
    )


async def test_migrated_code_runs(load: Any, execute: Any) -> None:
    page = load("migration.md")
    _, graded = await execute(page.backend)
    assert graded.status == RolloutStatus.SUCCESS
    recorder = page.Recorder(CHAT_SAMPLE)
    assert (await recorder.get_sample()).messages == CHAT_SAMPLE


async def test_code_of_the_trajectory_page(load: Any, execute: Any, tmp_path: Path) -> None:
    page = load("trajectories.md")
    (completion, _) = await execute(LocalBackend(workflow=page.Play))
    assert completion.sample.messages == [{"square": "e4", "at": 1_767_225_600}]
    assert [message["role"] for message in completion.sample.trajectory_messages] == ["user", "assistant"]
    document = {
        "steps": [
            {"step_id": 1, "source": "user", "message": "q"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"a": 1}}],
                "observation": {"results": [{"source_call_id": "c", "content": "1"}, {"content": "other"}]},
            },
        ]
    }
    (tmp_path / "trajectory.json").write_text(json.dumps(document))
    assert page.calls_of(tmp_path / "trajectory.json") == [("f", {"a": 1}, ["1"])]


def test_limits_of_artifacts_are_those_of_the_code() -> None:
    page = (DOCS / "trajectories.md").read_text()
    mebibyte = 2**20
    for row, value in {
        "size of a file": f"{rollout_files.MAX_FILE_BYTES // mebibyte} MiB",
        "all files of a rollout": f"{rollout_files.MAX_TOTAL_BYTES // mebibyte} MiB",
        "number of files": f"{rollout_files.MAX_FILES:,}",
        "length of a path": f"{rollout_files.MAX_PATH_CHARS:,} characters",
        "folders within folders": f"{rollout_files.MAX_DEPTH}",
        "size of `trajectory.json`": f"{rollout_files.MAX_TRAJECTORY_BYTES // mebibyte} MiB",
    }.items():
        assert f"| {row} | {value}" in page


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    kept = [
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        for heading in headings
    ]
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(), flags=re.DOTALL)
    for target, anchor in LINK.findall(text):
        if target.startswith(("http:", "https:")):
            continue
        path = DOCS / target if target else DOCS / page
        assert path.exists(), f"{page}: {target} does not exist"
        assert not anchor or anchor in anchors_of(path), f"{page}: no heading #{anchor} in {path.name}"


def test_every_page_is_in_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    assert [page for page in PAGES if f"docs/{page}" not in readme] == []
