"""Limits, delivery, references, caches and artifact trees."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import AgentWorkflowConfig, RolloutSample
from osmosis_ai.rollout.utils import file_artifacts, ttl_cache
from osmosis_ai.rollout.utils.concurrency import ConcurrencyLimiter
from osmosis_ai.rollout.utils.file_artifacts import artifact_tree_state, copy_artifact_tree
from osmosis_ai.rollout.utils.http import (
    _is_retryable_exception,
    close_shared_client,
    get_shared_client,
    post_json_with_retry,
)
from osmosis_ai.rollout.utils.imports import ensure_import_path, resolve_object, to_import_path
from osmosis_ai.rollout.utils.messages import map_initial_messages_to_content_blocks
from osmosis_ai.rollout.utils.rewards import validate_sample_has_reward
from osmosis_ai.rollout.utils.ttl_cache import TtlCache


async def test_limiter_never_runs_more_than_allowed_and_counts_the_rest(wait_until: Any) -> None:
    limiter = ConcurrencyLimiter(max_concurrent=2)
    release = asyncio.Event()
    most = 0

    async def work() -> None:
        nonlocal most
        async with limiter.acquire():
            most = max(most, limiter.running)
            await release.wait()

    tasks = [asyncio.create_task(work()) for _ in range(5)]
    await wait_until(lambda: limiter.queued == 3)
    assert limiter.snapshot() == {"max_concurrent": 2, "queued": 3, "running": 2}
    tasks[4].cancel()
    await asyncio.wait([tasks[4]])
    assert limiter.queued == 2
    release.set()
    await asyncio.gather(*tasks[:4])
    assert most == 2
    assert limiter.snapshot() == {"max_concurrent": 2, "queued": 0, "running": 0}
    with pytest.raises(RuntimeError, match="inside"):
        async with limiter.acquire():
            raise RuntimeError("inside")
    assert limiter.running == 0


async def test_retries_only_what_may_recover(controller: Any) -> None:
    controller.answers["/x"] = [(500, {}), (429, {}), (200, {"n": 1})]
    answer = await post_json_with_retry(
        url=f"{controller.url}/x", payload={"status": "s"}, base_delay_seconds=0
    )
    assert answer.json() == {"n": 1}
    assert len(controller.requests) == 3
    for status in (302, 400, 408, 409, 501):
        controller.answers["/x"] = [(status, {})]
        controller.requests.clear()
        with pytest.raises(httpx.HTTPStatusError):
            await post_json_with_retry(url=f"{controller.url}/x", payload={}, base_delay_seconds=0)
        assert len(controller.requests) == 1
    with pytest.raises(httpx.ConnectError):
        await post_json_with_retry(
            url="http://127.0.0.1:9/", payload={}, base_delay_seconds=0, max_attempts=2
        )
    with pytest.raises(ValueError, match="max_attempts must be >= 1"):
        await post_json_with_retry(url=controller.url, payload={}, max_attempts=0)
    await close_shared_client()


async def test_delays_double_up_to_their_limit(controller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def note(delay: float) -> None:
        delays.append(delay)

    controller.answers["/x"] = [(503, {})]
    monkeypatch.setattr("osmosis_ai.rollout.utils.http.asyncio.sleep", note)
    with pytest.raises(httpx.HTTPStatusError):
        await post_json_with_retry(url=f"{controller.url}/x", payload={}, max_attempts=7)
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    await close_shared_client()


async def test_shared_client_lives_until_closed() -> None:
    client = get_shared_client(3.0)
    assert get_shared_client(9.0) is client
    assert client.timeout.read == 3.0
    await close_shared_client()
    assert client.is_closed
    assert get_shared_client() is not client
    await close_shared_client()


def test_another_event_loop_gets_another_client() -> None:
    async def use() -> httpx.AsyncClient:
        return get_shared_client()

    first, second = asyncio.run(use()), asyncio.run(use())
    assert first is not second


def test_retryable_exceptions() -> None:
    request = httpx.Request("POST", "http://x")
    assert _is_retryable_exception(httpx.ReadTimeout("t", request=request))
    assert not _is_retryable_exception(ValueError())
    for status, expected in ((429, True), (504, True), (404, False), (501, False)):
        error = httpx.HTTPStatusError("e", request=request, response=httpx.Response(status))
        assert _is_retryable_exception(error) is expected


def test_references() -> None:
    assert resolve_object("osmosis_ai.rollout:AgentWorkflowConfig") is AgentWorkflowConfig
    assert resolve_object(5) == 5
    assert to_import_path(AgentWorkflowConfig) == "osmosis_ai.rollout.types.config:AgentWorkflowConfig"
    assert ensure_import_path("a:b") == "a:b"
    for ref in ("nocolon", ":x", "x:"):
        with pytest.raises(ValueError, match="expected 'module:attr' format"):
            resolve_object(ref)
    with pytest.raises(ValueError, match="expected 'module:attr' format"):
        ensure_import_path("nocolon")
    with pytest.raises(ModuleNotFoundError):
        resolve_object("no_such_module_here:x")
    with pytest.raises(ValueError, match="Cannot resolve import path"):
        to_import_path(AgentWorkflowConfig(name="w"))


def test_content_blocks() -> None:
    blocks = [{"text": "b"}]
    messages = [{"role": "user", "content": "a", "name": "n"}, {"role": "user", "content": blocks}]
    converted = map_initial_messages_to_content_blocks(messages)
    assert converted == [{"role": "user", "content": [{"text": "a"}]}, {"role": "user", "content": blocks}]
    assert converted[1]["content"] is blocks
    assert map_initial_messages_to_content_blocks([]) == []


def test_reward_presence() -> None:
    with pytest.raises(ValueError, match="No sample to grade"):
        validate_sample_has_reward(None)
    with pytest.raises(ValueError, match="Sample has no reward after grading"):
        validate_sample_has_reward(RolloutSample())
    validate_sample_has_reward(RolloutSample(remove_sample=True))


def test_cache_forgets_at_the_deadline_and_prunes_on_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(ttl_cache.time, "monotonic", lambda: now)
    cache: TtlCache[str, int] = TtlCache(10.0)
    cache.set("a", 1)
    now = 5.0
    cache.set("b", 2)
    cache.set("a", 3)
    now = 10.0
    assert (cache.get("a"), cache.get("b"), len(cache)) == (3, 2, 2)
    now = 15.0
    assert (cache.get("a"), cache.get("b"), len(cache)) == (None, None, 2)
    cache.set("c", 4)
    assert (len(cache), list(cache.entries)) == (1, ["c"])


async def test_artifacts_folder_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_artifacts, "CREATE_BACKOFF_SECONDS", 0.0)
    real, failures = Path.mkdir, [OSError("busy")] * 2

    def flaky(self: Path, *args: Any, **kwargs: Any) -> None:
        if failures:
            raise failures.pop()
        real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", flaky)
    folder = await file_artifacts.create_rollout_artifacts_dir(tmp_path, "r1")
    assert folder == tmp_path / "r1" / "artifacts"
    failures.extend([OSError("busy")] * 2)
    assert await file_artifacts.create_rollout_artifacts_dir(tmp_path, "r2", attempts=2) is None
    with pytest.raises(ValueError, match="single path segment"):
        await file_artifacts.create_rollout_artifacts_dir(tmp_path, "../r")


def test_artifact_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert file_artifacts.default_artifact_root() == tmp_path / "rollouts"
    monkeypatch.delenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert file_artifacts.default_artifact_root() == tmp_path / ".osmosis"


def test_artifact_trees_are_merged_without_links(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "root" / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.txt").write_text("a")
    (source / "file").write_text("f")
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder_link").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    (target / "file").mkdir(parents=True)
    (target / "deep").write_text("in the way")
    (target / "kept").write_text("k")

    assert copy_artifact_tree(source, target, destination_root=tmp_path / "root") == 2
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == {"deep/a.txt", "file", "kept"}

    baseline = artifact_tree_state(source)
    assert set(baseline) == {"deep/a.txt", "file"}
    (source / "file").write_text("changed")
    assert copy_artifact_tree(source, target, destination_root=tmp_path / "root", baseline=baseline) == 1
    assert (target / "file").read_text() == "changed"
    assert (
        copy_artifact_tree(source, target, destination_root=tmp_path / "root", replace_destination=True) == 2
    )
    assert not (target / "kept").exists()
    assert copy_artifact_tree(source / "folder_link", target, destination_root=tmp_path / "root") == 0


def test_artifacts_never_leave_their_root(tmp_path: Path) -> None:
    root, source, elsewhere = tmp_path / "root", tmp_path / "source", tmp_path / "elsewhere"
    for folder in (root, source, elsewhere):
        folder.mkdir()
    (source / "a").write_text("a")
    for outside in (root, tmp_path, root / ".." / "elsewhere", elsewhere / "x"):
        with pytest.raises(ValueError, match="outside trusted root"):
            copy_artifact_tree(source, outside, destination_root=root)
    (root / "link").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symlink in artifact destination path"):
        copy_artifact_tree(source, root / "link" / "x", destination_root=root)
    assert copy_artifact_tree(source, root / "link", destination_root=root) == 1
    assert not (root / "link").is_symlink()
    assert list(elsewhere.iterdir()) == []
