"""Policies behind an OpenAI-compatible server of the deployment."""

import math
from typing import Any

import httpx

from osmosis_ai.eval.policy.base import PROBE, PROBE_HOLD_SEC, PolicyUnusableError
from osmosis_ai.eval.policy.hold import HOLD_SEC, hold
from osmosis_ai.eval.policy.redaction import redact
from osmosis_ai.eval.policy.sampling import AttemptKey, apply_overrides, call_seed
from osmosis_ai.rollout.controller.chat import ChatError, TransientChatError
from osmosis_ai.rollout.controller.lanes import make_http_client
from osmosis_ai.rollout.controller.usage import UsageLedger
from osmosis_ai.worker.spec import PolicyOverrides

# A busy engine may take minutes for one long answer; a dead one refuses connections at once.
_TIMEOUT = httpx.Timeout(1800.0, connect=10.0)
_CONTROL_FIELDS = frozenset({"model", "stream", "stream_options", "n"})


class HostedPolicy:
    """Forwards model calls to ``base_url``/chat/completions as ``model``.

    While the server is unreachable or answers 429, 500, 502, 503 or 504, a call is held and repeated for up to
    ``hold_s`` seconds. Each call gets a seed made of the seed of the run, row, attempt and number of the call, so
    that a repeated evaluation samples the same tokens.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        model: str,
        *,
        overrides: PolicyOverrides | None = None,
        seed: int = 0,
        hold_s: float = HOLD_SEC,
    ) -> None:
        self.model = model
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._api_key = api_key
        self._overrides = overrides or PolicyOverrides()
        self._seed = seed if self._overrides.seed is None else self._overrides.seed
        self._hold_s = hold_s
        self._http = make_http_client(_TIMEOUT)
        self._usage = UsageLedger(model)
        self._attempts: dict[str, AttemptKey] = {}
        self._started: dict[str, int] = {}

    def begin(self, rollout_id: str, *, row_index: int, run_index: int) -> None:
        self._attempts[rollout_id] = AttemptKey(row_index, run_index)

    async def preflight(self) -> None:
        try:
            await hold(lambda: self._post(PROBE), limit_s=min(PROBE_HOLD_SEC, self._hold_s))
        except ChatError as error:
            raise PolicyUnusableError(
                f"model {self.model!r} cannot be used: {error.message.rstrip('.')}. Check [experiment].model_path and that the "
                "model is deployed."
            ) from error

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        request = apply_overrides(
            {k: v for k, v in body.items() if k not in _CONTROL_FIELDS}, self._overrides
        )
        if self._overrides.seed is not None or request.get("seed") is None:
            request["seed"] = self._next_seed(rollout_id)
        try:
            completion = await hold(lambda: self._post(request), limit_s=self._hold_s)
        except BaseException:
            # The agent may ask again; the same call then samples the same.
            if rollout_id in self._started:
                self._started[rollout_id] -= 1
            raise
        self._usage.record(rollout_id, completion)
        return {**completion, "model": body.get("model") or self.model}

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        return self._usage.report(rollout_id)

    def tokens(self, rollout_id: str) -> int | None:
        return self._usage.tokens(rollout_id)

    def discard(self, rollout_id: str) -> None:
        self._usage.discard(rollout_id)
        self._attempts.pop(rollout_id, None)
        self._started.pop(rollout_id, None)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _next_seed(self, rollout_id: str) -> int:
        call = self._started.get(rollout_id, 0)
        self._started[rollout_id] = call + 1
        return call_seed(self._seed, self._attempts.get(rollout_id, AttemptKey(0, 0)), call)

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._api_key}"}
        try:
            response = await self._http.post(self._url, json={**body, "model": self.model}, headers=headers)
        except httpx.TransportError as error:
            raise TransientChatError(
                f"the inference server is not reachable: {type(error).__name__}"
            ) from error
        if response.status_code == 200:
            return _completion(response)
        raise self._refusal(response)

    def _refusal(self, response: httpx.Response) -> ChatError:
        status = response.status_code
        message, kind, code = _error_of(response)
        message = redact(f"the inference server answered {status}: {message}", [self._api_key])
        if status in (408, 429) or status >= 500:
            return TransientChatError(message, code=code, retry_after=_retry_after(response))
        # A wrong key or an unknown model is the deployment's fault, a request out of bounds the agent's.
        return ChatError(
            message, status=status, type=kind, code=code, infrastructure=status in (401, 403, 404)
        )


def _completion(response: httpx.Response) -> dict[str, Any]:
    try:
        completion = response.json()
    except ValueError:
        completion = None
    if not isinstance(completion, dict) or not completion.get("choices"):
        raise TransientChatError("the inference server answered without a completion")
    return completion


def _error_of(response: httpx.Response) -> tuple[str, str, str | None]:
    try:
        error = response.json()["error"]
        return str(error["message"]), str(error.get("type") or "api_error"), error.get("code")
    except (ValueError, KeyError, TypeError):
        return response.text[:500] or "no body", "api_error", None


def _retry_after(response: httpx.Response) -> float | None:
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
