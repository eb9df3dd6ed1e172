"""Policies of other companies, called through LiteLLM."""

import os
from collections.abc import Mapping
from typing import Any

from osmosis_ai.eval.policy.base import PROBE, PROBE_HOLD_SEC, PolicyUnusableError
from osmosis_ai.eval.policy.hold import HOLD_SEC, hold
from osmosis_ai.eval.policy.redaction import redact
from osmosis_ai.eval.policy.sampling import AttemptKey, apply_overrides, call_seed
from osmosis_ai.rollout.controller.chat import ChatError, TransientChatError
from osmosis_ai.rollout.controller.llm_bridge import LiteLLMBridge
from osmosis_ai.worker.spec import PolicyOverrides


class ProviderPolicy:
    """Sends model calls to ``model`` (``provider/name``) through LiteLLM.

    ``env`` holds the credentials LiteLLM looks for; they are put into the environment of this process and kept out of
    messages. Rate limits and outages are held for up to ``hold_s`` seconds. Calls carry a seed only if the config
    sets one: not every provider accepts it.
    """

    def __init__(
        self,
        model: str,
        env: Mapping[str, str],
        *,
        overrides: PolicyOverrides | None = None,
        hold_s: float = HOLD_SEC,
    ) -> None:
        os.environ.update(env)
        self.model = model
        self._secrets = list(env.values())
        self._overrides = overrides or PolicyOverrides()
        self._hold_s = hold_s
        self._bridge = LiteLLMBridge(model=model)
        self._attempts: dict[str, AttemptKey] = {}

    def begin(self, rollout_id: str, *, row_index: int, run_index: int) -> None:
        self._attempts[rollout_id] = AttemptKey(row_index, run_index)

    async def preflight(self) -> None:
        try:
            await self._call(dict(PROBE), "preflight", min(PROBE_HOLD_SEC, self._hold_s))
        except ChatError as error:
            raise PolicyUnusableError(
                f"model {self.model!r} cannot be used: {error.message.rstrip('.')}. Check [experiment].model_path and that "
                "[secrets].required lists the provider's API key."
            ) from error
        except ModuleNotFoundError as error:
            raise PolicyUnusableError(str(error)) from error
        finally:
            self._bridge.discard("preflight")

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        request = apply_overrides(body, self._overrides)
        if self._overrides.seed is not None:
            key = self._attempts.get(rollout_id, AttemptKey(0, 0))
            request["seed"] = call_seed(self._overrides.seed, key, self._bridge.usage.calls(rollout_id))
        return await self._call(request, rollout_id, self._hold_s)

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        return self._bridge.usage.report(rollout_id)

    def tokens(self, rollout_id: str) -> int | None:
        return self._bridge.usage.tokens(rollout_id)

    def discard(self, rollout_id: str) -> None:
        self._bridge.discard(rollout_id)
        self._attempts.pop(rollout_id, None)

    async def aclose(self) -> None:
        """LiteLLM keeps its connections in globals of its own."""

    async def _call(self, request: dict[str, Any], rollout_id: str, limit_s: float) -> dict[str, Any]:
        async def once() -> dict[str, Any]:
            try:
                return await self._bridge.complete(request, rollout_id=rollout_id)
            except ChatError as error:
                raise self._redacted(error) from None

        return await hold(once, limit_s=limit_s)

    def _redacted(self, error: ChatError) -> ChatError:
        message = redact(error.message, self._secrets)
        if isinstance(error, TransientChatError):
            return TransientChatError(
                message, status=error.status, code=error.error_code, retry_after=error.retry_after
            )
        return ChatError(
            message,
            status=error.status,
            type=error.type,
            code=error.error_code,
            infrastructure=error.infrastructure,
        )
