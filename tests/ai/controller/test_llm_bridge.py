"""Policies of other providers, with a stand-in for LiteLLM."""

import json
import subprocess
import sys
import types

import httpx
import pytest
from fastapi import FastAPI

from osmosis_ai.rollout.controller import (
    CallbackListener,
    CallbackStore,
    ChatError,
    LiteLLMBridge,
    create_bridge_router,
)
from osmosis_ai.rollout.controller.chat import TransientChatError


class ProviderError(Exception):
    def __init__(self, message, status_code):
        super().__init__(message)
        self.status_code = status_code


class APIConnectionError(ProviderError):
    pass


class Timeout(APIConnectionError):
    pass


class FakeLiteLLM(types.ModuleType):
    def __init__(self):
        super().__init__("litellm")
        self.calls = []
        self.error = None
        self.usage = {
            "prompt_tokens": 10,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 8},
        }

    def get_llm_provider(self, model):
        if "/" not in model:
            raise ValueError("LLM Provider NOT provided")
        return model.partition("/")

    async def acompletion(self, **kwargs):
        self.calls.append(kwargs)
        if self.error:
            raise self.error
        message = {"role": "assistant", "content": "hi"}
        return {
            "id": "1",
            "created": 1,
            "model": "gpt-x",
            "choices": [{"index": 0, "message": message}],
            "usage": self.usage,
        }


@pytest.fixture
def litellm(monkeypatch):
    fake = FakeLiteLLM()
    monkeypatch.setitem(sys.modules, "litellm", fake)
    return fake


BODY = {
    "model": "osmosis-rollout",
    "messages": [{"role": "user", "content": "q"}],
    "temperature": 0.2,
    "tools": [],
}


async def test_a_call_reaches_the_provider_without_foreign_fields(litellm):
    bridge = LiteLLMBridge(model="openai/gpt-x", api_key="sk")
    answer = await bridge.complete({**BODY, "api_base": "http://evil", "extra": 1}, rollout_id="r")
    (call,) = litellm.calls
    assert call["model"] == "openai/gpt-x"
    assert (call["temperature"], call["api_base"], call["api_key"]) == (0.2, None, "sk")
    assert "tools" not in call
    assert "extra" not in call
    assert answer["model"] == "osmosis-rollout"


async def test_tokens_are_counted_per_rollout_and_collected_once(litellm):
    bridge = LiteLLMBridge(model="openai/gpt-x")
    for _ in range(2):
        await bridge.complete(BODY, rollout_id="r")
    report = bridge.usage.report("r")
    assert report["samples"]["r"]["llm_call_metrics"][0] == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "cached_tokens": 8,
        "model_name": "gpt-x",
    }
    assert bridge.collect_tokens("r") == 28
    assert bridge.collect_tokens("r") is None
    assert bridge.collect_tokens("never") is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"total_tokens": 9}, 9),
        ({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 9}, 9),
        ({"prompt_tokens": 1, "completion_tokens": None}, 1),
        (None, 0),
    ],
)
async def test_the_total_of_the_provider_counts(usage, tokens, litellm):
    litellm.usage = usage
    bridge = LiteLLMBridge(model="openai/gpt-x")
    await bridge.complete(BODY, rollout_id="r")
    assert bridge.collect_tokens("r") == tokens


@pytest.mark.parametrize(
    ("error", "kind", "status", "infrastructure"),
    [
        (ProviderError("key", 401), ChatError, 401, True),
        (ProviderError("no model", 404), ChatError, 404, True),
        (ProviderError("too long", 400), ChatError, 400, False),
        (ProviderError("slow down", 429), TransientChatError, 429, True),
        (ProviderError("busy", 409), TransientChatError, 409, True),
        (ProviderError("down", 503), TransientChatError, 502, True),
        (APIConnectionError("refused", 500), TransientChatError, 502, True),
        (Timeout("too slow", 408), TransientChatError, 502, True),
        (ValueError("broken"), TransientChatError, 502, True),
        (
            ProviderError("OpenAIException - Missing credentials. Please pass an `api_key`", 500),
            ChatError,
            401,
            True,
        ),
        (
            APIConnectionError("Missing Gemini API key. Set it.\nTraceback (most recent", 500),
            ChatError,
            401,
            True,
        ),
    ],
)
async def test_what_provider_errors_mean(error, kind, status, infrastructure, litellm):
    litellm.error = error
    with pytest.raises(ChatError) as caught:
        await LiteLLMBridge(model="openai/gpt-x").complete(BODY, rollout_id="r")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.infrastructure) == (status, infrastructure)


@pytest.mark.parametrize(
    ("model", "error", "fatal"),
    [
        ("openai/gpt-x", None, None),
        ("openai/gpt-x", ProviderError("slow down", 429), None),
        ("openai/gpt-x", ProviderError("wrong key", 401), "cannot be used.*wrong key"),
        ("openai/gpt-x", ProviderError("no right", 403), "cannot be used"),
        ("openai/gpt-x", ProviderError("no model", 404), "cannot be used"),
        ("openai/gpt-x", ProviderError("bad", 400), "cannot be used"),
        ("openai/gpt-x", ProviderError("down", 503), None),
        ("openai/gpt-x", APIConnectionError("refused", 500), "not reachable"),
        ("openai/gpt-x", Timeout("too slow", 408), "not reachable"),
        ("gpt", None, "Invalid LiteLLM model format"),
    ],
)
async def test_preflight(model, error, fatal, litellm):
    litellm.error = error
    check = LiteLLMBridge(model=model).preflight_check()
    if fatal is None:
        await check
    else:
        with pytest.raises(RuntimeError, match=fatal):
            await check


async def test_the_bridge_serves_a_listener(litellm):
    store = CallbackStore()
    bridge = LiteLLMBridge(model="openai/gpt-x")
    async with (
        CallbackListener(store, auth_token="a", bridge=bridge, bridge_token="b") as listener,
        httpx.AsyncClient() as http,
    ):
        url = listener.chat_completions_url("r") + "/chat/completions"
        answer = await http.post(url, json=BODY, headers={"Authorization": "Bearer b"})
        refused = await http.post(url, json=BODY, headers={"Authorization": "Bearer a"})
    assert answer.json()["choices"][0]["message"]["content"] == "hi"
    assert refused.status_code == 401
    with pytest.raises(ValueError, match="non-empty"):
        create_bridge_router(bridge, auth_token="")


ROUTE = "/v1/rollouts/r/chat/completions"


@pytest.fixture
async def bridge_client():
    """A client of an application that holds nothing but the bridge's router."""
    app = FastAPI()
    app.include_router(create_bridge_router(LiteLLMBridge(model="openai/gpt-x"), auth_token="b"))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://bridge", headers={"Authorization": "Bearer b"}
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "content", "headers", "expected"),
    [
        (ROUTE, BODY, {"Authorization": "Bearer a"}, (401, "missing or wrong bearer token")),
        ("/v1/rollouts/%2E%2E/chat/completions", BODY, {}, (422, "invalid rollout_id")),
        ("/v1/rollouts/a%5Cb/chat/completions", BODY, {}, (422, "invalid rollout_id")),
        (ROUTE, [], {}, (400, "invalid body")),
        (ROUTE, {}, {}, (400, "invalid body")),
        (ROUTE, {**BODY, "n": 2}, {}, (400, "'n' must be 1: a rollout has one sample")),
    ],
)
async def test_requests_that_the_bridge_refuses(path, content, headers, expected, bridge_client, litellm):
    answer = await bridge_client.post(path, json=content, headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == expected
    assert answer.json()["error"]["message"].startswith(expected[1])
    assert litellm.calls == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (APIConnectionError("refused", 500), 502),
        (ProviderError("down", 503), 502),
        (ProviderError("slow down", 429), 429),
        (ProviderError("too long", 400), 400),
    ],
)
async def test_what_the_agent_hears_of_a_provider_in_trouble(error, status, bridge_client, litellm):
    litellm.error = error
    answer = await bridge_client.post(ROUTE, json=BODY)
    assert answer.status_code == status
    assert str(error) in answer.json()["detail"]
    stream = await bridge_client.post(ROUTE, json={**BODY, "stream": True})
    assert (stream.status_code, stream.headers["cache-control"]) == (200, "no-cache")
    *_, event, done, rest = stream.text.split("\n\n")
    assert (event.splitlines()[0], done, rest) == ("event: error", "data: [DONE]", "")
    assert json.loads(event.splitlines()[1].removeprefix("data: "))["error"] == answer.json()["error"]


async def test_a_missing_litellm_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "osmosis-ai\[eval-run\]"') as caught:
        await LiteLLMBridge(model="openai/gpt-x").complete(BODY, rollout_id="r")
    assert caught.value.name == "litellm"


def test_the_facade_loads_nothing_before_it_is_asked():
    code = (
        "import sys, osmosis_ai.rollout.controller as c, osmosis_ai.rollout.controller.store, osmosis_ai.rollout.driver\n"
        "assert not {'fastapi', 'uvicorn', 'litellm', 'starlette'} & set(sys.modules), sorted(sys.modules)\n"
        "assert set(c.__all__) <= set(dir(c))\n"
        "assert all(getattr(c, name) for name in c.__all__)\n"
        "assert 'litellm' not in sys.modules\n"
        "try: c.Nothing\n"
        "except AttributeError as e: assert \"has no attribute 'Nothing'\" in str(e)\n"
        "else: raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_server_extra_is_named():
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "import osmosis_ai.rollout.controller as c\n"
        "try: c.CallbackListener\n"
        "except ModuleNotFoundError as e: assert 'pip install \"osmosis-ai[server]\"' in str(e) and e.name == 'uvicorn'\n"
        "else: raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
