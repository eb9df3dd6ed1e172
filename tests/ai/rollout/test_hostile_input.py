"""What no sane controller or rollout does: the server answers with one clear error, goes on, and keeps nothing."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
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
from osmosis_ai.rollout.server import app, create_rollout_server
from osmosis_ai.rollout.utils import deadline, request_size
from osmosis_ai.rollout.utils import http as callback_http
from osmosis_ai.rollout.utils.remove_tree import remove_tree

DEEP = 10_000


class Agent(AgentWorkflow):
    """Does what the row's metadata says."""

    async def run(self, ctx: AgentWorkflowContext) -> Any:
        return await BEHAVIOURS[(ctx.metadata or {}).get("do", "answer")](ctx)


class Judge(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        if (ctx.metadata or {}).get("grade") == "forever":
            await asyncio.Event().wait()
        ctx.set_reward(1.0)


async def answer(ctx: AgentWorkflowContext) -> Any:
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]


async def swallow(ctx: AgentWorkflowContext) -> Any:
    while not Swallowed.allowed_to_end.is_set():
        try:
            await Swallowed.allowed_to_end.wait()
        except asyncio.CancelledError:
            Swallowed.times += 1


async def cancel_itself(ctx: AgentWorkflowContext) -> Any:
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


async def exit_process(ctx: AgentWorkflowContext) -> Any:
    raise SystemExit(3)


async def speechless(ctx: AgentWorkflowContext) -> Any:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    raise Speechless


async def deep_messages(ctx: AgentWorkflowContext) -> Any:
    return [{"role": "assistant", "content": nested(DEEP)}]


async def odd_telemetry(ctx: AgentWorkflowContext) -> Any:
    class Source(SampleSource):
        async def get_sample(self) -> RolloutSample:
            metrics: dict[str, Any] = {"good": 1, "nan": float("nan"), "deep": nested(DEEP)}
            return RolloutSample(messages=[{"role": "assistant", "content": "x"}], metrics=metrics)

    rollout = get_rollout_context()
    assert rollout is not None
    rollout.set_sample_source(Source())


async def link_away(ctx: AgentWorkflowContext) -> Any:
    assert ctx.artifacts_dir is not None
    (ctx.artifacts_dir / "passwd").symlink_to("/etc/passwd")
    (ctx.artifacts_dir / "line\nbreak \u202e \\ name").write_text("x")
    ctx.artifacts_dir.parent.joinpath("trajectory.json").symlink_to(ctx.artifacts_dir / "victim")
    return await answer(ctx)


BEHAVIOURS = {
    behaviour.__name__: behaviour
    for behaviour in (
        *(answer, swallow, cancel_itself, exit_process, speechless),
        *(deep_messages, odd_telemetry, link_away),
    )
}


class Swallowed:
    times = 0
    allowed_to_end: asyncio.Event


def nested(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def backend() -> LocalBackend:
    Swallowed.times, Swallowed.allowed_to_end = 0, asyncio.Event()
    return LocalBackend(workflow=Agent, grader=Judge)


@pytest.fixture
async def http(serve: Callable[..., Any], backend: LocalBackend) -> AsyncIterator[httpx.AsyncClient]:
    server = create_rollout_server(backend=backend, configure_logging=False)
    async with serve(server) as served, httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        yield client
        assert (await client.get("/health")).status_code == 200
        Swallowed.allowed_to_end.set()


@pytest.fixture
def body(controller: Any) -> dict[str, Any]:
    return {
        "initial_messages": [{"role": "user", "content": "x"}],
        "chat_completions_url": "http://127.0.0.1:9/v1",
        "completion_callback_url": f"{controller.url}/completion",
        "grader_callback_url": f"{controller.url}/grader",
        "rollout_id": "r1",
        "label": "42",
        "controller_api_key": "callback-secret",
        "llm_api_key": "chat-secret",
    }


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(**keywords: Any) -> Any:
        return await callback_http.post_json_with_retry(**keywords, base_delay_seconds=0.0)

    monkeypatch.setattr(app, "post_json_with_retry", post)


async def send_raw(http: httpx.AsyncClient, raw: bytes | str, path: str = "/rollout") -> httpx.Response:
    return await http.post(path, content=raw, headers={"content-type": "application/json"})


def with_field(body: dict[str, Any], name: str, raw: str) -> str:
    return json.dumps({**body, name: "@"}).replace('"@"', raw)


NOT_FINITE: list[tuple[str, str, list[Any]]] = [
    ("agent_timeout_sec", "NaN", ["agent_timeout_sec"]),
    ("grader_timeout_sec", "-Infinity", ["grader_timeout_sec"]),
    ("agent_timeout_sec", "1e999", ["agent_timeout_sec"]),
    ("metadata", '{"a": [1, Infinity]}', ["metadata", "a", 1]),
    ("initial_messages", '[{"role": "user", "content": NaN}]', ["initial_messages", 0, "content"]),
    ("extra_fields", '{"x": NaN}', ["extra_fields", "x"]),
    ("unknown", "NaN", ["unknown"]),
]


async def test_numbers_that_are_none(http: Any, body: Any) -> None:
    for field, raw, loc in NOT_FINITE:
        refused = await send_raw(http, with_field(body, field, raw))
        assert refused.status_code == 422
        (problem,) = refused.json()["detail"]
        assert (problem["loc"], problem["type"]) == (["body", *loc], "finite_number")


NO_REQUESTS: list[tuple[str | bytes, str]] = [
    ("{", "json_invalid"),
    ("", "json_invalid"),
    (b'{"label": "\xff"}', "json_invalid"),
    ('{"label": ' + "9" * 5000 + "}", "json_invalid"),
    ('["a list"]', "dict_type"),
    ("null", "dict_type"),
    ('{"metadata": ' + "[" * DEEP + "]" * DEEP + "}", "json_too_deep"),
    ('{"metadata": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}", "json_too_deep"),
    ('{"metadata": ' + "[" * 200 + "]" * 200 + "}", "json_too_deep"),
]


async def test_bodies_that_are_no_request(http: Any) -> None:
    for raw, kind in NO_REQUESTS:
        for path in ("/rollout", "/rollout/cancel"):
            refused = await send_raw(http, raw, path)
            assert refused.status_code == 422
            assert [problem["type"] for problem in refused.json()["detail"]] == [kind]


async def test_other_content_types_are_refused(http: Any, body: Any) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        refused = await http.post(
            "/rollout", content=json.dumps(body), headers={"content-type": content_type}
        )
        assert refused.status_code == 422
        assert "content type" in refused.json()["detail"][0]["msg"]


async def test_a_refusal_repeats_neither_keys_nor_the_request(http: Any, body: Any) -> None:
    del body["chat_completions_url"]
    refused = await send_raw(http, json.dumps({**body, "llm_api_key": ["chat-secret"], "label": 5}))
    assert refused.status_code == 422
    assert {problem["loc"][-1] for problem in refused.json()["detail"]} == {
        "chat_completions_url",
        "llm_api_key",
        "label",
    }
    assert "secret" not in refused.text
    for key in ("k\r\nx: y", "schl\u00fcssel"):
        refused = await http.post("/rollout", json={**body, "controller_api_key": key})
        assert ["body", "controller_api_key"] in [problem["loc"] for problem in refused.json()["detail"]]


@pytest.mark.parametrize("megabytes", [2, pytest.param(50, marks=pytest.mark.slow)])
async def test_a_large_prompt_arrives_whole(
    megabytes: int, http: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    text = "\u00e9" * (megabytes * 500_000)  # two bytes each
    raw = json.dumps({**body, "initial_messages": [{"role": "user", "content": text}]}, ensure_ascii=False)
    assert (await send_raw(http, raw.encode())).status_code == 202
    await wait_until(lambda: len(controller.requests) == 2, 120)
    assert controller.body_of("/grader")["sample"]["messages"][0]["content"] == text


async def test_a_request_without_end_is_refused(http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "MAX_BODY_BYTES", 1000)
    refused = await send_raw(http, b" " * 2000)
    assert (refused.status_code, refused.json()) == (
        413,
        {"detail": "the request body is larger than 1000 bytes"},
    )


@pytest.mark.parametrize("rollout_id", ["a b", "a:b?c#d", "...", ".a", "-rf", "%2e%2e", "\u00e9", "x" * 5000])
async def test_unusual_ids_work(
    rollout_id: str, http: Any, body: Any, controller: Any, wait_until: Any, artifact_root: Path
) -> None:
    accepted = await http.post("/rollout", json={**body, "rollout_id": rollout_id})
    assert accepted.status_code == 202
    await wait_until(lambda: len(controller.requests) == 2)
    assert [exchange.body["rollout_id"] for exchange in controller.requests] == [rollout_id] * 2
    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    if len(rollout_id) < 200:
        await wait_until((artifact_root / rollout_id / "trajectory.json").exists)
    assert [path.parent for path in artifact_root.glob("*")] in ([], [artifact_root])


async def test_ids_that_lead_elsewhere_are_refused(http: Any, body: Any) -> None:
    polled = {key: value for key, value in body.items() if not key.endswith("_callback_url")}
    for rollout_id in ("", ".", "..", "a/b", "../x", "/x", "a\\b", "a\0b", "x\ud800"):
        for request in (body, polled):
            refused = await send_raw(http, json.dumps({**request, "rollout_id": rollout_id}))
            assert refused.status_code == 422
            assert [problem["loc"] for problem in refused.json()["detail"]] == [["body", "rollout_id"]]
    for path in ("/rollout/..%2f..%2fetc/status", "/rollout/../../etc/passwd", "/rollout//status"):
        assert (await http.get(path)).status_code == 404


async def test_a_grader_that_never_returns_is_stopped(
    http: Any, body: Any, controller: Any, wait_until: Any, backend: Any
) -> None:
    await http.post("/rollout", json={**body, "metadata": {"grade": "forever"}, "grader_timeout_sec": 0.05})
    await wait_until(lambda: len(controller.requests) == 2)
    assert controller.calls() == [("completion", "success"), ("grader", "failure")]
    assert controller.body_of("/grader")["err_message"] == "grader exceeded its 0.05s deadline"
    await wait_until(lambda: backend.limiter.running == 0)


async def test_a_workflow_that_swallows_cancellation_holds_up_nothing(
    http: Any,
    body: Any,
    controller: Any,
    wait_until: Any,
    backend: Any,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "ABANDON_AFTER_SEC", 0.05)
    stubborn = {**body, "metadata": {"do": "swallow"}, "agent_timeout_sec": 0.05}
    for _ in range(5):  # more than there are slots
        await http.post("/rollout", json=stubborn)
    await wait_until(lambda: len(controller.requests) == 10, 30)
    assert {exchange.body["status"] for exchange in controller.requests} == {"failure"}
    assert controller.body_of("/completion")["err_category"] == "timeout"
    await wait_until(lambda: backend.limiter.running == 0)
    assert Swallowed.times >= 4
    assert "goes on" in caplog.text
    Swallowed.allowed_to_end.set()
    await wait_until(lambda: not deadline._abandoned)


async def test_the_server_ends_though_a_workflow_swallows_cancellation(
    serve: Any,
    body: Any,
    backend: Any,
    controller: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    wait_until: Any,
) -> None:
    monkeypatch.setattr(app, "_SHUTDOWN_DRAIN_SEC", 0.05)
    monkeypatch.setattr(app, "_SHUTDOWN_CLEANUP_SEC", 0.05)
    server = create_rollout_server(backend=backend, configure_logging=False)
    async with serve(server) as served, httpx.AsyncClient() as client:
        await client.post(f"{served.url}/rollout", json={**body, "metadata": {"do": "swallow"}})
        await wait_until(lambda: backend.limiter.running == 1)
    assert "after it was cancelled" in caplog.text
    Swallowed.allowed_to_end.set()
    await wait_until(lambda: backend.limiter.running == 0)
    assert controller.requests == []


async def test_a_workflow_that_cancels_itself_has_failed(
    http: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    for limit in (None, 60):
        await http.post(
            "/rollout", json={**body, "metadata": {"do": "cancel_itself"}, "agent_timeout_sec": limit}
        )
    await wait_until(lambda: len(controller.requests) == 4)
    completion = controller.body_of("/completion")
    assert (completion["status"], completion["err_category"]) == ("failure", "agent_error")
    assert {exchange.body["status"] for exchange in controller.requests} == {"failure"}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [("exit_process", "user code called SystemExit(3)"), ("speechless", "Speechless")],
)
@pytest.mark.parametrize("limit", [None, 60])
async def test_what_a_workflow_raises_ends_its_own_rollout_only(
    behaviour: str, said: str, limit: Any, http: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    await http.post("/rollout", json={**body, "metadata": {"do": behaviour}, "agent_timeout_sec": limit})
    await wait_until(lambda: len(controller.requests) == 2)
    completion = controller.body_of("/completion")
    assert (completion["err_message"], completion["err_category"]) == (said, "agent_error")


async def test_a_workflow_that_cannot_even_be_made_ends_its_own_rollout_only(
    serve: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    class Exits(Agent):
        def __init__(self, config: Any) -> None:
            raise SystemExit(3)

    server = create_rollout_server(backend=LocalBackend(workflow=Exits), configure_logging=False)
    async with serve(server) as served, httpx.AsyncClient(base_url=served.url) as client:
        await client.post("/rollout", json=body)
        await wait_until(lambda: len(controller.requests) == 2)
        assert (await client.get("/health")).json()["concurrency"]["running"] == 0
    assert controller.body_of("/completion")["err_message"] == "Internal server error"


async def test_samples_nested_too_deep_are_sent_without_messages(
    http: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    await http.post("/rollout", json={**body, "metadata": {"do": "deep_messages"}})
    await wait_until(lambda: len(controller.requests) == 2)
    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    sample = controller.body_of("/grader")["sample"]
    assert (sample["messages"], sample["reward"]) == ([], 1.0)


async def test_text_that_utf8_cannot_carry_reaches_the_workflow_and_never_stops_a_callback(
    http: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    broken = {**body, "label": "x\ud800", "initial_messages": [{"role": "user", "content": "y\ud800"}]}
    assert (await send_raw(http, json.dumps(broken))).status_code == 202
    await wait_until(lambda: len(controller.requests) == 2)
    sample = controller.body_of("/grader")["sample"]
    assert (sample["label"], sample["messages"], sample["reward"]) == ("x?", [], 1.0)


async def test_telemetry_that_has_no_json_form_is_dropped(
    http: Any, body: Any, controller: Any, wait_until: Any
) -> None:
    await http.post("/rollout", json={**body, "metadata": {"do": "odd_telemetry"}})
    await wait_until(lambda: len(controller.requests) == 2)
    metrics = controller.body_of("/grader")["sample"]["metrics"]
    assert metrics["good"] == 1
    assert "nan" not in metrics


async def test_links_among_the_artifacts_are_not_written_through(
    http: Any, body: Any, controller: Any, wait_until: Any, artifact_root: Path
) -> None:
    await http.post("/rollout", json={**body, "metadata": {"do": "link_away"}})
    document = artifact_root / "r1" / "trajectory.json"
    await wait_until(lambda: document.is_file() and not document.is_symlink())
    assert not (artifact_root / "r1" / "artifacts" / "victim").exists()
    assert controller.calls() == [("completion", "success"), ("grader", "success")]


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        ([(500, {})] * 4 + [(200, {})], 5),
        ([(301, {})], 2),
        ([(307, {})], 2),
    ],
)
async def test_controllers_in_trouble(
    answers: Any, calls: int, http: Any, body: Any, controller: Any, wait_until: Any, backend: Any
) -> None:
    controller.answers["/completion"] = answers
    await http.post("/rollout", json=body)
    await wait_until(lambda: any(exchange.path == "/grader" for exchange in controller.requests))
    await wait_until(lambda: backend.limiter.running == 0)
    assert len([exchange for exchange in controller.requests if exchange.path == "/completion"]) == calls


async def test_a_minute_of_errors_uses_up_the_five_attempts_with_the_agreed_pauses(
    body: Any, controller: Any, monkeypatch: pytest.MonkeyPatch, backend: Any, serve: Any, wait_until: Any
) -> None:
    pauses: list[float] = []

    class Clock:
        """asyncio, without the waiting."""

        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    monkeypatch.setattr(callback_http, "asyncio", Clock())
    monkeypatch.setattr(app, "post_json_with_retry", callback_http.post_json_with_retry)
    controller.answers["/completion"] = [(500, {})]
    server = create_rollout_server(backend=backend, configure_logging=False)
    async with serve(server) as served, httpx.AsyncClient() as client:
        await client.post(f"{served.url}/rollout", json=body)
        await wait_until(lambda: len(controller.requests) == 11)
        await wait_until(lambda: backend.limiter.running == 0)
    assert pauses == [0.5, 1.0, 2.0, 4.0] * 2
    assert controller.calls()[-1] == ("grader", "failure")


async def test_nothing_secret_is_logged(
    http: Any, body: Any, controller: Any, wait_until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    controller.answers["/completion"] = [(404, {"you sent": "callback-secret"})]
    controller.answers["/grader"] = [(404, {})]
    await http.post("/rollout", json=body)
    await wait_until(lambda: len(controller.requests) == 3)
    await wait_until(lambda: "Could not report" in caplog.text)
    ours = [
        record.getMessage() + str(record.exc_text) for record in caplog.records if "osmosis" in record.name
    ]
    assert ours
    assert "secret" not in "".join(ours)


def test_folders_nested_without_end_are_removed(tmp_path: Path) -> None:
    script = "import os\nfor _ in range(2000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    (tmp_path / "rollout").mkdir()
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "rollout", check=True)
    remove_tree(tmp_path / "rollout")
    remove_tree(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
