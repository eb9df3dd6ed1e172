"""The small parts that user code and tests reach by name, row by row. More of them is in `test_building_blocks.py`."""

import inspect
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.utils import errors, file_artifacts, http, identifiers, imports, ttl_cache
from osmosis_ai.rollout.utils.concurrency import ConcurrencyLimiter

DEFAULTS = {
    http.get_shared_client: {"timeout_seconds": 10.0},
    http.post_json_with_retry: {
        "url": ...,
        "payload": ...,
        "headers": None,
        "max_attempts": 5,
        "base_delay_seconds": 0.5,
        "max_delay_seconds": 8.0,
        "timeout_seconds": 10.0,
    },
    identifiers.is_single_path_segment: {"name": ...},
    identifiers.ensure_single_path_segment: {"value": ..., "label": "id"},
    imports.resolve_object: {"ref": ...},
    imports.to_import_path: {"obj": ...},
    imports.ensure_import_path: {"ref": ...},
    file_artifacts.default_artifact_root: {},
    file_artifacts.create_rollout_artifacts_dir: {"root": ..., "rollout_id": ..., "attempts": None},
    file_artifacts.artifact_tree_state: {"source": ...},
    file_artifacts.copy_artifact_tree: {
        "source": ...,
        "destination": ...,
        "destination_root": ...,
        "baseline": None,
        "replace_destination": False,
    },
    ConcurrencyLimiter: {"max_concurrent": ...},
    ttl_cache.TtlCache: {"ttl_sec": ...},
}


@pytest.mark.parametrize("function", DEFAULTS, ids=lambda function: function.__name__)
def test_signatures(function: Any) -> None:
    found = {
        name: ... if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
    }
    assert found == DEFAULTS[function]


def test_constants() -> None:
    assert Path("/logs/artifacts") == file_artifacts.HARBOR_ARTIFACTS_DIR
    assert file_artifacts.GRADER_ARTIFACTS_SNAPSHOT_DIRNAME == ".osmosis-artifacts"
    assert (file_artifacts.CREATE_ATTEMPTS, file_artifacts.CREATE_BACKOFF_SECONDS) == (3, 0.5)


async def test_a_limiter_without_limit_still_counts() -> None:
    limiter = ConcurrencyLimiter(max_concurrent=None)
    async with limiter.acquire(), limiter.acquire():
        assert (limiter.max_concurrent, limiter.queued, limiter.running) == (None, 0, 2)
        assert limiter.snapshot() == {"max_concurrent": None, "queued": 0, "running": 2}
    assert limiter.running == 0


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (httpx.ConnectError("x"), True),
        (httpx.ReadTimeout("x"), True),
        (httpx.RemoteProtocolError("x"), True),
        (RuntimeError("x"), False),
        *((status, True) for status in (429, 500, 502, 503, 504)),
        *((status, False) for status in (301, 302, 307, 400, 401, 403, 404, 408, 409, 422, 501)),
    ],
)
async def test_what_is_sent_again(error: Any, retried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the seam: whatever client `get_shared_client` returns is used."""
    request = httpx.Request("POST", "http://c/x")
    if isinstance(error, int):
        answer = httpx.Response(error, request=request)
        error = httpx.HTTPStatusError("x", request=request, response=answer)
    assert http._is_retryable_exception(error) is retried
    calls: list[dict[str, Any]] = []

    class Client:
        async def post(self, url: str, **options: Any) -> httpx.Response:
            calls.append({"url": url, **options})
            if isinstance(error, httpx.HTTPStatusError):
                return error.response
            raise error

    monkeypatch.setattr(http, "get_shared_client", lambda timeout: Client())
    with pytest.raises(type(error)):
        await http.post_json_with_retry(
            url="http://c/x", payload={"a": 1}, headers={"h": "v"}, max_attempts=3, base_delay_seconds=0
        )
    assert calls == [{"url": "http://c/x", "json": {"a": 1}, "headers": {"h": "v"}}] * (3 if retried else 1)


class Thing:
    inner = "value"


thing = Thing()
nothing = None


def test_references_by_name() -> None:
    assert imports.resolve_object(f"{__name__}:thing") is thing
    assert imports.resolve_object(f"{__name__}:Thing.inner") == "value"
    assert imports.resolve_object(None) is None
    for attribute in ("absent", "nothing"):
        with pytest.raises(ImportError, match=f"does not export '{attribute}'"):
            imports.resolve_object(f"{__name__}:{attribute}")
    assert imports.to_import_path(Thing) == f"{__name__}:Thing"
    assert imports.to_import_path(thing) == imports.ensure_import_path(thing) == f"{__name__}:thing"
    for unnamed in (Thing(), 5):
        with pytest.raises(ValueError, match="Cannot resolve import path"):
            imports.to_import_path(unnamed)


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError("t"), "timeout"),
        (type("Late", (TimeoutError,), {})(), "timeout"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "r"), "validation_error"),
        (__import__("json").JSONDecodeError("m", "d", 0), "validation_error"),
        (LookupError(), "agent_error"),
        (httpx.ReadTimeout("t"), "agent_error"),
    ],
)
def test_categories_of_derived_exceptions(error: Exception, category: str) -> None:
    assert errors.categorize_exception(error) == category


def test_a_cache_shows_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(ttl_cache.time, "monotonic", lambda: now[0])
    cache: ttl_cache.TtlCache[str, int] = ttl_cache.TtlCache(10)
    assert (cache.ttl_sec, len(cache.entries), len(cache.tombstones), cache.get("a")) == (10, 0, 0, None)
    cache.set("a", 1)
    now[0] = 109.999
    assert cache.get("a") == 1
    now[0] = 110.0
    assert (cache.get("a"), len(cache)) == (None, 1)
    cache.set("b", 2)
    assert (len(cache), set(cache.entries), cache.get("b")) == (1, {"b"}, 2)


async def test_the_folder_of_a_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def note(delay: float) -> None:
        delays.append(delay)

    threads: set[int] = set()
    write = Path.write_bytes

    def noting(path: Path, data: bytes) -> int:
        threads.add(threading.get_ident())
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", noting)
    root = tmp_path / "not" / "there"
    made = await file_artifacts.create_rollout_artifacts_dir(root, "r1")
    assert threads
    assert threading.get_ident() not in threads
    assert made == root / "r1" / "artifacts"
    assert made.is_dir()
    probe = root / "r1" / ".osmosis-health-check"
    written = probe.stat().st_mtime_ns
    (made / "kept").write_text("x")
    assert await file_artifacts.create_rollout_artifacts_dir(root, "r1") == made
    assert probe.stat().st_mtime_ns == written
    made.joinpath("kept").unlink()
    made.rmdir()
    assert await file_artifacts.create_rollout_artifacts_dir(root, "r1") == made
    assert made.is_dir()
    monkeypatch.setattr(file_artifacts.asyncio, "sleep", note)
    (tmp_path / "file").write_text("")
    assert await file_artifacts.create_rollout_artifacts_dir(tmp_path / "file", "r1") is None
    assert delays == [0.5, 1.0]
