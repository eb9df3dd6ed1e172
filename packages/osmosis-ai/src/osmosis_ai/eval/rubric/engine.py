"""Asking a judge for one score.

LiteLLM's blocking call runs in a thread of its own, so that many judgements wait side by side and Ctrl-C does not wait for them.
"""

import asyncio
import contextlib
import contextvars
import importlib.util
import math
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from osmosis_ai.eval.policy.redaction import redact
from osmosis_ai.eval.rubric.answer import parse_answer as _sanitize_json
from osmosis_ai.eval.rubric.errors import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError
from osmosis_ai.eval.rubric.judge_model import DEFAULT_REQUEST_TIMEOUT_SECONDS, ApiKey, resolve_api_key
from osmosis_ai.eval.rubric.judge_model import default_timeout_for_model as _default_timeout_for_model
from osmosis_ai.eval.rubric.judge_model import parse_provider as _parse_provider
from osmosis_ai.eval.rubric.judge_model import to_litellm_model as _to_litellm_model
from osmosis_ai.eval.rubric.prompt import build_system_prompt, response_format
from osmosis_ai.eval.rubric.prompt import build_user_prompt as _build_user_prompt
from osmosis_ai.eval.rubric.result import JudgeUsage, RubricResult
from osmosis_ai.litellm_import import load_litellm

__all__ = ["DEFAULT_REQUEST_TIMEOUT_SECONDS", "evaluate_rubric"]

# Whoever gets hold of `evaluate_rubric` can use it: a missing LiteLLM shows here, without the seconds that its import takes.
if sys.modules.get("litellm") is None and importlib.util.find_spec("litellm") is None:
    raise ModuleNotFoundError("No module named 'litellm'", name="litellm")


async def evaluate_rubric(
    *,
    solution_str: str,
    rubric: str,
    model: str,
    ground_truth: str | None = None,
    original_input: str | None = None,
    metadata: dict[str, Any] | None = None,
    score_min: float = 0.0,
    score_max: float = 1.0,
    api_key: str | None = None,
    timeout: float | None = None,
    system_prompt: str | None = None,
) -> RubricResult:
    """Let ``model`` score ``solution_str`` against ``rubric``.

    ``model`` is ``provider/name``; bare names of OpenAI, Anthropic, Gemini and xAI work too. The score is clamped to
    [``score_min``, ``score_max``]. The API key comes from ``api_key`` or from the provider's environment variable. ``timeout``
    is in seconds, for one request; without it 30, and up to 60 for providers that take longer.

    Raises:
        TypeError: ``solution_str``, ``rubric`` or ``model`` is no text or blank, or an optional text is something else.
        ValueError: the score range is empty or not finite, or the timeout is not positive.
        MissingAPIKeyError: there is no API key for the provider.
        ModelNotFoundError: the provider does not know the model.
        ProviderRequestError: the provider failed, refused, or its answer is no score.
    """
    _require_text(solution_str=solution_str, rubric=rubric, model=model)
    _allow_text(ground_truth=ground_truth, original_input=original_input, system_prompt=system_prompt)
    _require_numbers(score_min, score_max, timeout)
    provider = _parse_provider(model)
    key = resolve_api_key(provider, api_key)
    if key.is_missing:
        raise MissingAPIKeyError(
            f"no API key for {provider}: set {key.variable}, or pass api_key (--api-key)"
        )
    prompt = _build_user_prompt(
        rubric, score_min, score_max, solution_str, original_input, ground_truth, metadata
    )
    request: dict[str, Any] = {
        "model": _to_litellm_model(model),
        "messages": [
            {"role": "system", "content": build_system_prompt(system_prompt)},
            {"role": "user", "content": prompt},
        ],
        "temperature": 0,
        "timeout": _default_timeout_for_model(model) if timeout is None else timeout,
        # Some models take no temperature or response format; they are then asked without.
        "drop_params": True,
    }
    if key.for_litellm is not None:
        request["api_key"] = key.for_litellm
    response = await _answer_of(request, provider or "", key)
    try:
        judgement = _sanitize_json(_content_of(response))
    except ValueError as error:
        raise ProviderRequestError(provider or "", request["model"], str(error)) from None
    score = min(max(judgement.score, score_min), score_max)
    return RubricResult(score, judgement.explanation, _usage_of(response))


def _require_text(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise TypeError(f"{name} must be a non-empty string")


def _allow_text(**values: Any) -> None:
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a string or None, not {type(value).__name__}")


def _require_numbers(score_min: float, score_max: float, timeout: float | None) -> None:
    if not (math.isfinite(score_min) and math.isfinite(score_max)) or score_max <= score_min:
        raise ValueError(f"score_max ({score_max}) must be greater than score_min ({score_min}), both finite")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout}")


def _litellm_completion(**request: Any) -> Any:
    return load_litellm("rubric").completion(**request)


def _supports_schema(model: str) -> bool:
    try:
        return bool(load_litellm("rubric").supports_response_schema(model=model))
    except (ValueError, KeyError, TypeError):
        return False  # LiteLLM's table does not know the model


def _ask(request: dict[str, Any]) -> Any:
    schema = _supports_schema(request["model"])
    return _litellm_completion(**request, response_format=response_format(schema=schema))


async def _answer_of(request: dict[str, Any], provider: str, key: ApiKey) -> Any:
    try:
        return await _in_thread(_ask, request)
    except (TypeError, ValueError, ImportError):
        raise
    except Exception as error:
        failure = _failure_of(error, provider, request["model"], key)
    # Out here the error has no context: what a provider says may repeat the key.
    raise failure


def _failure_of(
    error: Exception, provider: str, model: str, key: ApiKey
) -> ProviderRequestError | MissingAPIKeyError:
    text = str(error).removeprefix("litellm.") or type(error).__name__
    detail = redact(text, [key.value] if key.value else [])
    if _is_a(error, "NotFoundError"):
        return ModelNotFoundError(provider, model, detail)
    if _is_a(error, "AuthenticationError") and key.value is None:
        return MissingAPIKeyError(
            f"no API key for judge {model!r}: pass api_key (--api-key). The provider says: {detail}"
        )
    return ProviderRequestError(provider, model, detail)


def _is_a(error: Exception, name: str) -> bool:
    litellm = sys.modules.get("litellm")
    kinds = [getattr(place, name, None) for place in (litellm, getattr(litellm, "exceptions", None))]
    return any(isinstance(kind, type) and isinstance(error, kind) for kind in kinds)


def _content_of(response: Any) -> str | None:
    choices = _item(response, "choices")
    content = _item(_item(choices[0], "message"), "content") if choices else None
    return content if isinstance(content, str) else None


def _usage_of(response: Any) -> JudgeUsage | None:
    usage = _item(response, "usage")
    cost = _item(_item(response, "_hidden_params"), "response_cost")
    told = JudgeUsage(
        _count(_item(usage, "prompt_tokens")),
        _count(_item(usage, "completion_tokens")),
        float(cost) if isinstance(cost, int | float) and cost >= 0 else None,
    )
    return told if told != JudgeUsage() else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _item(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


async def _in_thread[Answer](function: Callable[..., Answer], *args: Any) -> Answer:
    """Run a blocking function in a thread that nobody waits for when the caller is cancelled or the process ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Answer | None, error: BaseException | None) -> None:
        if answer.done():
            return  # cancelled
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(cast(Answer, value))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function, *args)
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="judge", daemon=True).start()
    return await answer
