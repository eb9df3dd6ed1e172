"""Model calls through LiteLLM, for policies of other providers."""

import logging
import re
from typing import Any, Protocol

from fastapi import APIRouter

from osmosis_ai.litellm_import import load_litellm
from osmosis_ai.rollout.controller.chat import ChatError, TransientChatError
from osmosis_ai.rollout.controller.chat_router import ChatEndpoint
from osmosis_ai.rollout.controller.usage import UsageLedger

logger = logging.getLogger(__name__)

# Whatever else an agent sends never reaches LiteLLM: its keyword arguments include base URLs and credentials.
FORWARDED_FIELDS = frozenset(
    {
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "logprobs"),
        *("top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "response_format"),
        *("reasoning_effort", "user", "verbosity"),
    }
)
_SILENTLY_DROPPED = frozenset({"model", "store", "metadata", "service_tier"})

_PROBE_TOKENS = 256
# LiteLLM's names for a provider that did not answer at all.
_UNREACHABLE = frozenset({"APIConnectionError", "Timeout"})
# What LiteLLM and the clients of providers say when nobody gave them a key. It comes as an error of the server.
_NO_CREDENTIALS = re.compile(r"Missing credentials|Missing [\w ]{1,40}API key", re.IGNORECASE)


class _LiteLLM(Protocol):
    """The part of LiteLLM that is used here."""

    async def acompletion(self, **kwargs: Any) -> Any: ...

    def get_llm_provider(self, model: str) -> Any: ...


def _get_litellm() -> _LiteLLM:
    module: _LiteLLM = load_litellm("eval-run")
    return module


class LiteLLMBridge:
    """Answers chat completions with the provider model ``model`` (``provider/name``)."""

    def __init__(self, *, model: str, api_key: str | None = None, api_base: str | None = None) -> None:
        self.model = model
        self.usage = UsageLedger(model)
        self._api_key = api_key
        self._api_base = api_base
        self._warned: set[str] = set()

    async def preflight_check(self) -> None:
        """Make one small call. Raises :class:`RuntimeError` when the model cannot be used; a rate limit passes."""
        litellm = _get_litellm()
        try:
            litellm.get_llm_provider(self.model)
        except Exception as error:
            raise RuntimeError(
                f"Invalid LiteLLM model format {self.model!r}: use 'provider/model', such as 'openai/gpt-5-mini'"
            ) from error
        try:
            await self.probe()
        except TransientChatError as error:
            if error.error_code in _UNREACHABLE:
                raise RuntimeError(f"model {self.model!r} is not reachable: {error.message}") from error
            logger.warning("the probe call to %s failed for now: %s", self.model, error.message)
        except ChatError as error:
            raise RuntimeError(f"model {self.model!r} cannot be used: {error.message}") from error

    async def probe(self) -> None:
        """One small call that counts for no rollout. Raises :class:`ChatError`."""
        await self._call({"messages": [{"role": "user", "content": "hi"}], "max_tokens": _PROBE_TOKENS})

    async def complete(self, body: dict[str, Any], *, rollout_id: str) -> dict[str, Any]:
        """Answer one request. The ``model`` of the answer is the one that the client named."""
        completion = await self._call(body)
        self.usage.record(rollout_id, completion)
        return {**completion, "model": body.get("model") or self.model}

    def collect_tokens(self, rollout_id: str) -> int | None:
        """Tokens the rollout spent, once: the count is dropped. None if it was never served."""
        tokens = self.usage.tokens(rollout_id)
        self.usage.discard(rollout_id)
        return tokens

    def discard(self, rollout_id: str) -> None:
        """Forget the rollout."""
        self.usage.discard(rollout_id)

    async def _call(self, body: dict[str, Any]) -> dict[str, Any]:
        litellm = _get_litellm()
        for name in sorted(body.keys() - FORWARDED_FIELDS - _SILENTLY_DROPPED - self._warned):
            self._warned.add(name)
            logger.warning("request field %r is not forwarded to %s", name, self.model)
        request = {key: body[key] for key in FORWARDED_FIELDS & body.keys() if body[key] is not None}
        if request.get("tools") == []:
            del request["tools"]
        try:
            response = await litellm.acompletion(
                model=self.model,
                api_key=self._api_key,
                api_base=self._api_base,
                drop_params=True,
                num_retries=0,
                **request,
            )
        except Exception as error:
            raise chat_error_of(error) from error
        completion: dict[str, Any] = (
            response.model_dump() if hasattr(response, "model_dump") else dict(response)
        )
        if not completion.get("choices"):
            raise TransientChatError("the provider returned no choices")
        return completion


def chat_error_of(error: Exception) -> ChatError:
    """What a LiteLLM exception means for the agent and for the rollout.

    Missing and wrong credentials and unknown models are infrastructure: no agent could do better. A request that the provider
    rejects (400, 422, too long a context) is the agent's. Everything else may pass with time. The agent gets the provider's
    own status where that is 4xx, else 502.
    """
    status = getattr(error, "status_code", None)
    name = type(error).__name__
    message = f"{name}: {error}".partition("\nTraceback (")[0]
    if _NO_CREDENTIALS.search(message):
        return ChatError(message, status=401, type="invalid_request_error", code=name, infrastructure=True)
    if name in _UNREACHABLE or not isinstance(status, int) or not 400 <= status < 500:
        return TransientChatError(message, status=502, code=name)
    if status in (401, 403, 404):
        return ChatError(message, status=status, type="invalid_request_error", code=name, infrastructure=True)
    if status in (400, 413, 422):
        return ChatError(message, status=status, type="invalid_request_error", code=name)
    return TransientChatError(message, status=status, code=name)


class BridgeChatModel:
    """A :class:`LiteLLMBridge` as the chat model of a controller."""

    def __init__(self, bridge: LiteLLMBridge) -> None:
        self._bridge = bridge

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._bridge.complete(body, rollout_id=rollout_id)

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        return self._bridge.usage.report(rollout_id)

    def discard(self, rollout_id: str) -> None:
        self._bridge.discard(rollout_id)


def create_bridge_router(bridge: LiteLLMBridge, *, auth_token: str) -> APIRouter:
    """A router with the chat endpoint of ``bridge``; a blank ``auth_token`` is a :class:`ValueError`."""
    router = APIRouter()
    router.routes.append(ChatEndpoint(BridgeChatModel(bridge), auth_tokens=[auth_token]).route)
    return router
