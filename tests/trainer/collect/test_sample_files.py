"""The files of sampled rollouts are a help for readers: none of them holds up or ends a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from osmosis_ai.worker.run_client import RunApiError
from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.sample_files import SampleFiles


def leave(root: Path, attempt: Attempt, files: dict[str, bytes]) -> None:
    """What a rollout server leaves of a rollout, its trajectory last."""
    for path, content in files.items():
        target = root / attempt.rollout_id / "artifacts" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (root / attempt.rollout_id / "trajectory.json").write_text(json.dumps({"session_id": attempt.rollout_id}))


async def test_files_that_the_platform_refuses_are_left_out(
    attempt: Callable[..., Attempt], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def put(content: bytes) -> str:
        if content == b"no":
            raise RunApiError("the platform refused PUT")
        return hashlib.sha256(content).hexdigest()

    files = SampleFiles(tmp_path)
    good, bad, bare = attempt(0, 1.0), attempt(1, 1.0), attempt(2, outcome="failed")
    leave(tmp_path, good, {"a.txt": b"yes", "b/c.txt": b""})
    leave(tmp_path, bad, {"a.txt": b"no"})
    assert await files.store(good, put) == [
        {"path": "a.txt", "size": 3, "sha256": hashlib.sha256(b"yes").hexdigest()},
        {"path": "b/c.txt", "size": 0, "sha256": hashlib.sha256(b"").hexdigest()},
    ]
    assert await files.store(bad, put) is None
    assert f"the artifacts of rollout {bad.rollout_id} are left out: the platform refused PUT" in caplog.text
    assert await files.store(bare, put) is None


async def test_servers_that_write_no_trajectory_are_hardly_waited_for(
    attempt: Callable[..., Attempt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait_for_trajectory(root: Path, rollout_id: str, *, wait_s: float) -> bytes | None:
        waits.append(wait_s)
        return b"{}" if rollout_id == attempt(3, 1.0).rollout_id else None

    monkeypatch.setattr("osmosis_trainer.sample_files.wait_for_trajectory", wait_for_trajectory)
    files = SampleFiles(tmp_path, wait_s=8.0)
    for sample in (attempt(0, 1.0), attempt(1, outcome="skipped"), attempt(2, 1.0), attempt(3, 1.0)):
        await files.store(sample, lambda content: pytest.fail("there is no file"))
    await files.store(attempt(4, 1.0), lambda content: pytest.fail("there is no file"))
    assert waits == [8.0, 0.0, 4.0, 2.0, 8.0]
