"""What a rollout server does with one rollout, row by row, through the seams that callers replace."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    ExecutionBackend,
    ExecutionResult,
    Grader,
    LocalBackend,
    RolloutInitRequest,
    RolloutSample,
    get_rollout_context,
)
from osmosis_ai.rollout.server import app as server_app
from osmosis_ai.rollout.server import create_rollout_server

COMPLETION, GRADER = "http://c/completion", "http://c/grader"
MESSAGES = [{"role": "assistant", "content": "42"}]
SUCCESS = {"status": "success", "rollout_id": "r1", "err_message": None, "err_category": None}
FAILURE = {**SUCCESS, "status": "failure"}


class Answers(AgentWorkflow):
    async def run(self, ctx: Any) -> Any:
        if ctx.prompt:
            raise ValueError("bad prompt")
        return MESSAGES


class Unbuildable(Answers):
    def __init__(self, config: Any) -> None:
        raise RuntimeError("setup")


class Rewards(Grader):
    async def grade(self, ctx: Any) -> None:
        ctx.set_reward(0.5)
        if ctx.label == "raise":
            raise RuntimeError("boom")
        ctx.sample.remove_sample = ctx.label == "remove"


class Scripted(ExecutionBackend):
    def __init__(self, script: Any, capture: bool = False) -> None:
        self.script = script
        self.capture = capture
        self.requests: list[Any] = []

    @property
    def capture_final_result(self) -> bool:
        return self.capture

    async def execute(self, request: Any, on_workflow_complete: Any, on_grader_complete: Any = None) -> None:
        self.requests.append(request)
        await self.script(on_workflow_complete, on_grader_complete)


class Recorder:
    """Stands in for the delivery of callbacks and for the archive."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.saved: list[dict[str, Any]] = []
        self.troubles: list[Exception | None] = []

    async def post(self, **keywords: Any) -> httpx.Response:
        assert sorted(keywords) == ["headers", "payload", "url"]
        assert type(keywords["payload"]) is dict
        self.posts.append(keywords)
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble
        return httpx.Response(200, json={"ok": True})

    async def save(self, **keywords: Any) -> None:
        self.saved.append(keywords)

    def payloads(self) -> list[tuple[str, dict[str, Any]]]:
        return [(post["url"].rpartition("/")[2], post["payload"]) for post in self.posts]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(server_app, "post_json_with_retry", recorder.post)
    monkeypatch.setattr(server_app, "save_trajectory", recorder.save)
    return recorder


def request(**changes: Any) -> RolloutInitRequest:
    fields = {
        "initial_messages": [],
        "chat_completions_url": "http://chat",
        "completion_callback_url": COMPLETION,
        "grader_callback_url": GRADER,
        "rollout_id": "r1",
    }
    return RolloutInitRequest(**{**fields, **changes})


def sample_with(**fields: Any) -> dict[str, Any]:
    return {
        "messages": MESSAGES,
        "label": None,
        "reward": None,
        "remove_sample": False,
        "metrics": {},
        "extra_fields": {},
        **fields,
    }


BAD = {"initial_messages": [{"role": "user", "content": "x"}]}
NOT_GRADED = ("grader", {**FAILURE, "sample": None})
DONE = ("completion", {**SUCCESS, "extra_fields": None})
FAILED = {**FAILURE, "extra_fields": None, "err_message": "bad prompt", "err_category": "validation_error"}


@pytest.mark.parametrize(
    ("changes", "grader", "posted"),
    [
        ({"grader_callback_url": None, "label": "x"}, Rewards, [DONE]),
        ({}, Rewards, [DONE, NOT_GRADED]),
        (
            {"label": "x"},
            Rewards,
            [DONE, ("grader", {**SUCCESS, "sample": sample_with(label="x", reward=0.5)})],
        ),
        (
            {"label": ""},
            Rewards,
            [DONE, ("grader", {**SUCCESS, "sample": sample_with(label="", reward=0.5)})],
        ),
        ({"metadata": {}}, Rewards, [DONE, ("grader", {**SUCCESS, "sample": sample_with(reward=0.5)})]),
        (
            {"label": "remove"},
            Rewards,
            [DONE, ("grader", {**SUCCESS, "sample": sample_with(label="remove", remove_sample=True)})],
        ),
        (
            {"label": "raise"},
            Rewards,
            [
                DONE,
                (
                    "grader",
                    {
                        **FAILURE,
                        "sample": sample_with(label="raise"),
                        "err_message": "boom",
                        "err_category": "agent_error",
                    },
                ),
            ],
        ),
        ({"label": "x"}, None, [DONE, NOT_GRADED]),
        ({**BAD, "label": "x"}, Rewards, [("completion", FAILED), NOT_GRADED]),
        ({**BAD, "grader_callback_url": None}, None, [("completion", FAILED)]),
    ],
)
async def test_what_a_local_rollout_posts(
    changes: dict[str, Any], grader: Any, posted: Any, recorder: Recorder
) -> None:
    await server_app._handle_rollout(LocalBackend(workflow=Answers, grader=grader), request(**changes))
    assert recorder.payloads() == posted
    with_sample = [save for save in recorder.saved if save["result"].sample is not None]
    assert len(with_sample) == (FAILED not in [payload for _, payload in posted])


async def test_a_workflow_that_cannot_be_built_is_an_internal_error(recorder: Recorder) -> None:
    await server_app._handle_rollout(LocalBackend(workflow=Unbuildable), request())
    internal = {**FAILURE, "extra_fields": None, "err_message": "Internal server error"}
    assert recorder.payloads() == [("completion", internal), NOT_GRADED]
    assert recorder.saved == []


@pytest.mark.parametrize(
    ("keys", "callback", "chat"),
    [
        ({}, None, "from-env"),
        ({"controller_api_key": ""}, None, "from-env"),
        ({"controller_api_key": "c"}, {"Authorization": "Bearer c"}, "c"),
        ({"llm_api_key": "l"}, None, "l"),
        ({"controller_api_key": "c", "llm_api_key": "l"}, {"Authorization": "Bearer c"}, "l"),
    ],
)
async def test_which_key_goes_where(
    keys: Any, callback: Any, chat: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSMOSIS_API_KEY", "from-env")
    monkeypatch.setenv("OSMOSIS_CHAT_COMPLETIONS_URL", "http://env")
    seen: list[Any] = []

    async def script(on_workflow: Any, on_grader: Any) -> None:
        seen.append(get_rollout_context())
        await on_workflow(ExecutionResult(status="success"))

    await server_app._handle_rollout(Scripted(script), request(chat_completions_url="", **keys))
    assert (seen[0].api_key, seen[0].chat_completions_url, seen[0].rollout_id) == (chat, "http://env", "r1")
    assert [post["headers"] for post in recorder.posts] == [callback]
    assert get_rollout_context() is None


async def test_the_backend_gets_the_request(recorder: Recorder) -> None:
    grader_channels: list[bool] = []

    async def script(on_workflow: Any, on_grader: Any) -> None:
        grader_channels.append(on_grader is not None)

    prompt = [{"role": "user", "content": [{"type": "text", "text": "\u00e9"}], "other": None}]
    full = request(
        initial_messages=prompt, label="l", metadata={"a": [1]}, agent_timeout_sec=0, grader_timeout_sec=-1
    )
    for capture in (False, True):
        backend = Scripted(script, capture)
        await server_app._handle_rollout(backend, full)
        await server_app._handle_rollout(backend, full.model_copy(update={"grader_callback_url": None}))
        given = backend.requests[0]
        assert (given.id, given.prompt, given.label, given.metadata) == ("r1", prompt, "l", {"a": [1]})
        assert (given.agent_timeout_sec, given.grader_timeout_sec) == (0, -1)
    assert grader_channels == [True, False, True, True]
    anonymous = Scripted(script)
    await server_app._handle_rollout(anonymous, request(rollout_id=None))
    assert len(anonymous.requests[0].id) == 32


def sampled(name: str, **fields: Any) -> ExecutionResult:
    return ExecutionResult(status="success", sample=RolloutSample(messages=[{"from": name}]), **fields)


BARE = ExecutionResult(status="failure")


@pytest.mark.parametrize(
    ("results", "kept", "diagnostics"),
    [
        ([sampled("workflow"), sampled("grader")], "grader", None),
        ([sampled("workflow"), BARE], "workflow", None),
        ([sampled("workflow", extra_fields={"n": 1}), BARE], "workflow", {"n": 1}),
        (
            [sampled("workflow", extra_fields={"n": 1}), ExecutionResult(status="failure", extra_fields={})],
            "workflow",
            {},
        ),
        ([ExecutionResult(status="failure", extra_fields={"n": 2}), BARE], None, {"n": 2}),
    ],
)
async def test_what_is_archived(results: Any, kept: Any, diagnostics: Any, recorder: Recorder) -> None:
    for dies in (False, True):

        async def script(on_workflow: Any, on_grader: Any, dies: bool = dies) -> None:
            await on_workflow(results[0])
            await on_grader(results[1])
            if dies:
                raise RuntimeError("lost")

        recorder.saved.clear()
        await server_app._handle_rollout(
            Scripted(script), request(label="l", metadata={"m": 1}, extra_fields={"row_index": 3})
        )
        (saved,) = recorder.saved
        sample = saved["result"].sample
        assert (None if sample is None else sample.messages[0]["from"]) == kept
        assert saved["diagnostics"] == diagnostics
        assert (saved["rollout_id"], saved["request_label"]) == ("r1", "l")
        assert (saved["request_metadata"], saved["request_extra_fields"]) == ({"m": 1}, {"row_index": 3})


async def test_diagnostics_without_a_sample_reach_the_disk(
    artifact_root: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> None:
    from osmosis_ai.rollout.trajectory.save import save_trajectory

    monkeypatch.setattr(server_app, "save_trajectory", save_trajectory)

    async def script(on_workflow: Any, on_grader: Any) -> None:
        await on_workflow(ExecutionResult(status="failure", extra_fields={"b": 1, "a": 2}))

    await server_app._handle_rollout(Scripted(script), request())
    assert [path.name for path in (artifact_root / "r1").iterdir()] == ["diagnostics.json"]
    text = (artifact_root / "r1" / "diagnostics.json").read_text()
    assert text.rstrip() == '{\n  "a": 2,\n  "b": 1\n}'


@pytest.mark.parametrize("trouble", [TypeError("no JSON"), ValueError("no JSON")])
async def test_a_sample_without_json_form_is_sent_once_more_without_its_contents(
    trouble: Exception, recorder: Recorder
) -> None:
    async def script(on_workflow: Any, on_grader: Any) -> None:
        sample = RolloutSample(
            messages=MESSAGES, label="l", reward=1, metrics={"m": 1}, extra_fields={"e": 1}
        )
        await on_workflow(ExecutionResult(status="success"))
        await on_grader(ExecutionResult(status="success", sample=sample))

    recorder.troubles = [None, trouble]
    await server_app._handle_rollout(Scripted(script), request())
    assert [channel for channel, _ in recorder.payloads()] == ["completion", "grader", "grader"]
    assert recorder.posts[-1]["payload"] == {
        **SUCCESS,
        "sample": sample_with(messages=[], label="l", reward=1.0),
    }


@pytest.mark.parametrize(
    ("troubles", "channels"),
    [
        # (did the post of this turn fail), and what is posted in which order
        ([True], ["completion success", "completion failure", "grader failure"]),
        ([True, True], ["completion success", "completion failure", "grader failure"]),
        ([False, True], ["completion success", "grader success", "grader failure"]),
        ([False, False], ["completion success", "grader success"]),
    ],
)
async def test_nothing_acknowledged_is_repeated(
    troubles: list[bool], channels: list[str], recorder: Recorder
) -> None:
    async def script(on_workflow: Any, on_grader: Any) -> None:
        await on_workflow(ExecutionResult(status="success"))
        await on_grader(ExecutionResult(status="success"))
        raise RuntimeError("late")

    recorder.troubles = [httpx.ConnectError("gone") if failed else None for failed in troubles]
    await server_app._handle_rollout(Scripted(script), request())
    assert [f"{channel} {payload['status']}" for channel, payload in recorder.payloads()] == channels


def test_the_signature() -> None:
    parameters = inspect.signature(create_rollout_server).parameters
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values())
    assert parameters["lifespan"].default is None
    assert parameters["configure_logging"].default is True
    assert parameters["backend"].default is inspect.Parameter.empty
    assert server_app._SHUTDOWN_DRAIN_SEC == 10.0
    assert inspect.iscoroutinefunction(server_app._handle_rollout)


async def test_admission(recorder: Recorder) -> None:
    """Ids are not told apart, a bad body is refused before capacity is asked for, and the document names the routes."""

    async def script(on_workflow: Any, on_grader: Any) -> None: ...

    backend = Scripted(script)
    server = create_rollout_server(backend=backend, configure_logging=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://server") as client:
        body = request().model_dump()
        for _ in range(2):
            assert (await client.post("/rollout", json=body)).status_code == 202
        await asyncio.sleep(0)
        assert [given.id for given in backend.requests] == ["r1", "r1"]
        backend.has_capacity = lambda: False  # type: ignore[method-assign]
        refused = await client.post("/rollout", json={**body, "label": 1})
        assert refused.status_code == 422
        assert set(refused.json()["detail"][0]) >= {"type", "loc", "msg", "input"}
        assert (await client.post("/rollout", json=body)).status_code == 429
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert {"/health", "/rollout", "/rollout/{rollout_id}/status", "/rollout/cancel"} <= set(paths)
        disposed = await client.post("/rollout/cancel", json={"ids": []})
        assert (disposed.status_code, disposed.json()) == (200, {"dispositions": {}})
        for selector in ({"ids": "r1"}, {"all": "maybe"}, {"ids": [1]}):
            assert (await client.post("/rollout/cancel", json=selector)).status_code == 422
    assert len(backend.requests) == 2
