"""Whatever happens to the files of a rollout, its status and its reward stay what they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    Grader,
    GraderContext,
    LocalBackend,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.server import app as server_app
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.utils import file_artifacts
from osmosis_ai.worker.rollout_files import MAX_FILE_BYTES, read_artifacts

CONVERSATION = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


class Fixed(SampleSource):
    def __init__(self, sample: RolloutSample) -> None:
        self.sample = sample

    async def get_sample(self) -> RolloutSample:
        return self.sample


class Plain(AgentWorkflow):
    folders: list[Path | None] = []

    async def run(self, ctx: AgentWorkflowContext) -> Any:
        self.folders.append(ctx.artifacts_dir)
        return CONVERSATION


class One(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        Plain.folders.append(ctx.artifacts_dir)
        ctx.set_reward(1.0)


@pytest.fixture
def reward_of(
    controller: Any, serve: Any, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run a workflow through a rollout server; the reward that the controller got, which must be a success."""
    monkeypatch.setattr(file_artifacts, "CREATE_BACKOFF_SECONDS", 0.0)
    # The server's end waits for the rollout's last file.
    monkeypatch.setattr(server_app, "_SHUTDOWN_DRAIN_SEC", 180.0)
    Plain.folders = []

    async def run(workflow: Any) -> float:
        backend = LocalBackend(workflow=workflow, grader=One)
        async with (
            serve(create_rollout_server(backend=backend, configure_logging=False)) as served,
            httpx.AsyncClient(timeout=180) as client,
        ):
            await client.post(
                f"{served.url}/rollout",
                json={
                    "rollout_id": "r1",
                    "initial_messages": [],
                    "chat_completions_url": "http://127.0.0.1:9",
                    "completion_callback_url": f"{controller.url}/completion",
                    "grader_callback_url": f"{controller.url}/grader",
                    "label": "x",
                },
            )
            await wait_until(lambda: len(controller.requests) == 2, 180)
        assert controller.calls() == [("completion", "success"), ("grader", "success")]
        return controller.body_of("/grader")["sample"]["reward"]

    return run


async def test_root_that_is_no_folder(
    reward_of: Any, artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifact_root.write_text("in the way")
    assert await reward_of(Plain) == 1.0
    assert Plain.folders == [None, None]
    assert "Cannot save the trajectory of rollout r1" in caplog.text


@pytest.mark.parametrize("method", ["mkdir", "write_bytes"])
async def test_disk_that_fails(
    method: str, reward_of: Any, artifact_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, method, full)
    assert await reward_of(Plain) == 1.0
    assert Plain.folders == [None, None]
    monkeypatch.undo()
    assert list(artifact_root.rglob("*.json")) == []
    assert [path.name for path in artifact_root.rglob(".trajectory*")] == []


class Foreign:
    def __repr__(self) -> str:
        return "<foreign>"


class Unserialisable(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        ring: dict[str, Any] = {}
        ring["self"] = ring
        sample = RolloutSample(
            messages=CONVERSATION,
            trajectory_messages=[
                {"role": "user", "content": [{"type": "file", "data": Foreign()}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"x": Foreign()}}}],
                },
            ],
            extra_fields={"ring": ring, "kept": 1},
        )
        get_rollout_context().set_sample_source(Fixed(sample))


async def test_messages_that_are_no_json(reward_of: Any, artifact_root: Path, check_atif: Any) -> None:
    assert await reward_of(Unserialisable) == 1.0
    document = json.loads((artifact_root / "r1" / "trajectory.json").read_text())
    check_atif(document)
    assert document["steps"][0]["message"] == '[{"type": "file", "data": "<foreign>"}]'
    assert document["steps"][1]["tool_calls"][0]["arguments"] == {"x": "<foreign>"}
    assert document["extra"]["osmosis"]["sample_extra_fields"] == {"ring": {}, "kept": 1}


class Ring(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        part: dict[str, Any] = {"type": "text"}
        part["text"] = [part]
        sample = RolloutSample(
            messages=CONVERSATION, trajectory_messages=[{"role": "user", "content": [part]}]
        )
        get_rollout_context().set_sample_source(Fixed(sample))


async def test_message_that_cannot_be_written_at_all(
    reward_of: Any, artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await reward_of(Ring) == 1.0
    assert not (artifact_root / "r1" / "trajectory.json").exists()
    assert "Cannot save the trajectory of rollout r1" in caplog.text


class Bottomless(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> Any:
        content: Any = "x"
        for _ in range(100_000):
            content = [content]
        return [{"role": "assistant", "content": content}]


async def test_message_without_a_bottom(
    reward_of: Any, artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await reward_of(Bottomless) == 1.0
    assert not (artifact_root / "r1" / "trajectory.json").exists()
    assert "Failed to snapshot messages" in caplog.text


class OptOut(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        sample = RolloutSample(messages=CONVERSATION, trajectory_messages=None)
        get_rollout_context().set_sample_source(Fixed(sample))


async def test_opt_out_saves_nothing_and_warns_of_nothing(
    reward_of: Any, artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert await reward_of(OptOut) == 1.0
    assert not (artifact_root / "r1" / "trajectory.json").exists()
    records = [record for record in caplog.records if record.name == "osmosis_ai.rollout.trajectory.save"]
    assert [(record.levelname, "Skipping trajectory" in record.message) for record in records] == [
        ("INFO", True)
    ]


class Hoarder(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> Any:
        assert ctx.artifacts_dir is not None
        with (ctx.artifacts_dir / "huge.bin").open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        (ctx.artifacts_dir / "passwd").symlink_to("/etc/passwd")
        (ctx.artifacts_dir / "notes").mkdir()
        (ctx.artifacts_dir / "notes" / "a.txt").write_text("kept")
        return CONVERSATION


async def test_huge_and_foreign_files_are_left_out(
    reward_of: Any, artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await reward_of(Hoarder) == 1.0
    assert dict(read_artifacts(artifact_root, "r1")) == {"notes/a.txt": b"kept"}
    for name in ("huge.bin", "passwd"):
        assert f"{name!r} is left out: no regular file" in caplog.text
    assert "over the limit (64 MiB a file, 256 MiB a rollout)" in caplog.text
