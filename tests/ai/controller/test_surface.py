"""Names, defaults and rules of the driver, the callback store and the listener, row by row."""

import asyncio
import dataclasses
import inspect
import logging

import httpx
import pytest
import uvicorn

from osmosis_ai.rollout import controller, driver, http_driver
from osmosis_ai.rollout.controller import listener as listener_module
from osmosis_ai.rollout.controller import llm_bridge
from osmosis_ai.rollout.controller.store import (
    CallbackStore,
    DuplicateRegistrationError,
    TerminalCallbackResult,
    UnknownRolloutIdError,
)
from osmosis_ai.rollout.types import GraderCompleteRequest, RolloutCompleteRequest, RolloutSample

KEY = {"Authorization": "Bearer key"}
GRADED = {"status": "success", "sample": {"reward": 1.0}}


def fields_of(kind):
    return {
        field.name: field.default if field.default is not dataclasses.MISSING else field.default_factory
        for field in dataclasses.fields(kind)
    }


def test_driver_types():
    assert driver.__all__ == ["RolloutDriver", "RolloutOutcome", "RolloutRunRequest"]
    assert not hasattr(driver, "InProcessDriver")
    missing = dataclasses.MISSING
    assert fields_of(driver.RolloutOutcome) == {
        "status": missing,
        "sample": None,
        "error": None,
        "rollout_id": None,
    }
    assert fields_of(driver.RolloutRunRequest) == {
        "messages": missing,
        "label": None,
        "metadata": None,
        "rollout_id": "",
        "agent_timeout_sec": None,
        "grader_timeout_sec": None,
        "extra_fields": None,
    }
    with pytest.raises(TypeError, match="run"):
        driver.RolloutDriver()
    assert issubclass(http_driver.HttpRolloutDriver, driver.RolloutDriver)
    error = http_driver.RolloutProtocolError("refused", status_code=418)
    assert (str(error), error.status_code) == ("refused", 418)


def test_signatures():
    expected = {
        http_driver.HttpRolloutDriver: {
            "rollout_base_url": ...,
            "callback_store": ...,
            "completion_url_for": ...,
            "grader_url_for": ...,
            "chat_completions_url_for": ...,
            "chat_api_key": ...,
            "controller_api_key": ...,
            "http_client": None,
            "callback_timeout_sec": None,
        },
        controller.CallbackListener: {
            "store": ...,
            "auth_token": ...,
            "bridge": None,
            "bridge_token": None,
        },
        controller.LiteLLMBridge: {"model": ..., "api_key": None, "api_base": None},
        CallbackStore.finalize_timeout: {"self": ..., "rollout_id": ..., "acknowledgment": None},
        CallbackStore.acknowledge_without_commit: {
            "self": ...,
            "rollout_id": ...,
            "source": "cancelled",
            "acknowledgment": None,
        },
    }
    for function, wanted in expected.items():
        found = {
            name: ... if parameter.default is inspect.Parameter.empty else parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
        }
        assert wanted.items() <= found.items(), function
        assert {name for name, default in found.items() if default is ...} == {
            name for name, default in wanted.items() if default is ...
        }


def test_the_facade():
    names = {
        "CallbackStore",
        "DuplicateRegistrationError",
        "UnknownRolloutIdError",
        "TerminalCallbackResult",
        "duplicate_callback_payload",
        "CallbackListener",
        "create_callback_app",
        "LiteLLMBridge",
        "create_bridge_router",
    }
    assert names <= set(dir(controller))
    assert all(getattr(controller, name) is getattr(controller, name) for name in names)
    with pytest.raises(
        AttributeError, match=r"module 'osmosis_ai\.rollout\.controller' has no attribute 'X'"
    ):
        _ = controller.X
    with pytest.raises(ValueError, match="non-empty"):
        controller.create_bridge_router(controller.LiteLLMBridge(model="openai/x"), auth_token=" ")
    assert callable(llm_bridge._get_litellm)
    assert (listener_module._START_POLL_ATTEMPTS, listener_module._START_POLL_INTERVAL_SEC) > (0, 0)


def test_store_types():
    assert issubclass(DuplicateRegistrationError, ValueError)
    assert issubclass(UnknownRolloutIdError, KeyError)
    result = TerminalCallbackResult("r", "grader")
    assert (result.completion, result.grader, result.acknowledgment) == (None, None, {"ok": True})
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.source = "timeout"


async def test_unknown_ids_and_ids_in_use():
    store = CallbackStore(on_terminal_commit=None)
    await store.register("r")
    assert set(store._sessions) == {"r"}
    with pytest.raises(DuplicateRegistrationError):
        await store.register("r")
    await store.discard("never registered")
    grading = GraderCompleteRequest(status="failure")
    for call in (
        store.handle_grader("x", grading),
        store.handle_completion("x", RolloutCompleteRequest(status="success")),
        store.finalize_timeout("x"),
        store.acknowledge_without_commit("x"),
        store.wait_terminal("x"),
    ):
        with pytest.raises(UnknownRolloutIdError):
            await call


@pytest.mark.parametrize("way", ["timeout", "cancelled"])
@pytest.mark.parametrize("given", [None, {"ok": True, "why": "x"}])
async def test_endings_that_no_server_reported(way, given, caplog):
    committed = []

    async def commit(result):
        committed.append(result)

    store = CallbackStore(on_terminal_commit=commit)
    await store.register("r")
    completion = RolloutCompleteRequest(status="success")
    await store.handle_completion("r", completion)
    if way == "timeout":
        ended = await store.finalize_timeout("r", acknowledgment=given)
        default = {"ok": True, "error_type": "callback_timeout"}
    else:
        ended = await store.acknowledge_without_commit("r", acknowledgment=given)
        default = {"ok": True}
    assert (ended.source, ended.completion, ended.grader) == (way, completion, None)
    assert ended.acknowledgment == (given or default)
    assert [result.source for result in committed] == (["timeout"] if way == "timeout" else [])
    assert (await store.wait_terminal("r")) is ended
    for _ in range(2):
        late = await store.handle_grader("r", GraderCompleteRequest(status="success", sample=RolloutSample()))
        assert late == ended.acknowledgment
        failed = await store.handle_completion("r", RolloutCompleteRequest(status="failure"))
        assert failed == ended.acknowledgment
        await store.discard("r")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_cancelled_waiter_cancels_nothing():
    store = CallbackStore(on_terminal_commit=None)
    await store.register("r")
    waiters = [asyncio.create_task(store.wait_terminal("r")) for _ in range(2)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    await store.handle_grader("r", GraderCompleteRequest(status="failure"))
    assert (await waiters[1]).source == "grader"
    assert waiters[0].cancelled()


@pytest.fixture
async def parts():
    """A store whose commits can fail, its listener, and a client."""
    troubles = []

    async def commit(result):
        if troubles:
            raise troubles.pop()
        return {"ok": True, "stored": True}

    store = CallbackStore(on_terminal_commit=commit)
    await store.register("r")
    async with (
        controller.CallbackListener(store, auth_token="key") as listener,
        httpx.AsyncClient(base_url=listener.base_url) as http,
    ):
        yield store, troubles, http


@pytest.mark.parametrize(
    ("channel", "status", "answer"),
    [
        *(("completion", status, 200) for status in ("success", "failure", "cancelled")),
        *(("completion", status, 422) for status in ("queued", "running", "grading", "unknown", "pending")),
        *(("grader", status, 200) for status in ("success", "failure")),
        *(("grader", status, 422) for status in ("pending", "cancelled", "running")),
    ],
)
async def test_only_terminal_statuses_are_taken(channel, status, answer, parts):
    store, _, http = parts
    response = await http.post(f"/v1/rollouts/r/{channel}", json={"status": status}, headers=KEY)
    assert response.status_code == answer
    assert store.is_open("r") is (channel == "completion" or answer == 422)


@pytest.mark.parametrize("rollout_id", ["%2E%2E", "a%5Cb", "a%00b", "."])
async def test_ids_that_are_none(rollout_id, parts):
    _, _, http = parts
    url = httpx.URL(http.base_url).copy_with(raw_path=f"/v1/rollouts/{rollout_id}/grader".encode())
    assert (await http.post(url, json=GRADED, headers=KEY)).status_code in (404, 422)
    assert (await http.post(url, json=GRADED)).status_code in (401, 404)


async def test_a_result_that_cannot_be_stored_is_asked_for_again_and_the_first_one_counts(parts, caplog):
    _, troubles, http = parts
    troubles.append(OSError("disk full"))
    url = "/v1/rollouts/r/grader"
    refused = await http.post(url, json=GRADED, headers=KEY)
    assert refused.status_code == 503
    stored = await http.post(url, json=GRADED, headers=KEY)
    assert (stored.status_code, stored.json()) == (200, {"ok": True, "stored": True})
    caplog.clear()
    for late in (GRADED, {"status": "failure"}):
        again = await http.post(url, json=late, headers=KEY)
        assert (again.status_code, again.json()) == (200, {"ok": True, "stored": True})
    conflicts = [record for record in caplog.records if "conflicting duplicate" in record.getMessage()]
    assert [record.levelno for record in conflicts] == [logging.ERROR]


@pytest.mark.parametrize("way", ["raises", "ends", "hangs"])
async def test_a_listener_whose_start_failed_can_be_started(way, monkeypatch):
    monkeypatch.setattr(listener_module, "_START_POLL_ATTEMPTS", 3)
    monkeypatch.setattr(listener_module, "_START_POLL_INTERVAL_SEC", 0.001)

    async def serve(self, sockets=None):
        if way == "raises":
            raise OSError("no more files")
        if way == "hangs":
            await asyncio.Event().wait()

    store = CallbackStore(on_terminal_commit=None)
    listener = controller.CallbackListener(store, auth_token="key")
    with monkeypatch.context() as patch:
        patch.setattr(uvicorn.Server, "serve", serve)
        with pytest.raises((OSError, RuntimeError)):
            await listener.__aenter__()
    monkeypatch.setattr(listener_module, "_START_POLL_ATTEMPTS", 1000)
    monkeypatch.setattr(listener_module, "_START_POLL_INTERVAL_SEC", 0.02)
    async with listener, httpx.AsyncClient() as http:
        answer = await http.post(listener.completion_url("x"), json={"status": "success"}, headers=KEY)
    assert answer.status_code == 404
