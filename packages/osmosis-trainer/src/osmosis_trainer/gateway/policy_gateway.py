"""The policy as the controller's chat model: rollout-scoped sessions over an engine."""

from __future__ import annotations

import time
from typing import Any

from osmosis_ai.rollout.controller.chat import ChatError, is_client_retry
from osmosis_trainer.chat.codec import ChatCodec
from osmosis_trainer.chat.completion import chat_completion, choice, token_logprobs, usage
from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.chat.request import ChatRequest
from osmosis_trainer.engines.protocol import POLICY, Engine
from osmosis_trainer.errors import ContextLengthError, EngineError
from osmosis_trainer.gateway.report import trajectory_report, trajectory_view
from osmosis_trainer.gateway.session import Session, SessionLimits
from osmosis_trainer.gateway.trace import SessionTrace


class PolicyGateway:
    """Serves the policy to rollouts the trainer opened; implements the controller's `ChatModel`.

    The trainer calls `open` before a rollout starts and `close` after it ended; in between the controller calls
    `complete` for every model call. `adapter` None samples the base model.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        codec: ChatCodec | None = None,
        adapter: str | None = POLICY,
        model_name: str = "osmosis-rollout",
    ) -> None:
        self._engine = engine
        self.codec = codec or ChatCodec(engine.tokenizer)
        self._adapter = adapter
        self._model_name = model_name
        self._sessions: dict[str, Session] = {}

    def open(
        self,
        rollout_id: str,
        *,
        seed: int,
        temperature: float,
        top_p: float,
        max_prompt_tokens: int,
        max_response_tokens: int,
        max_completion_tokens: int | None = None,
    ) -> None:
        """Let `rollout_id` ask the policy; `SessionLimits` says what the limits mean. Raises ValueError if it is open."""
        if rollout_id in self._sessions:
            raise ValueError(f"rollout {rollout_id} is already open; every attempt needs an id of its own")
        limits = SessionLimits(
            seed, temperature, top_p, max_prompt_tokens, max_response_tokens, max_completion_tokens
        )
        self._sessions[rollout_id] = Session(rollout_id, self._engine, self.codec, self._adapter, limits)

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one chat completion request; raises ChatError with OpenAI's codes to refuse."""
        session = self._sessions.get(rollout_id)
        if session is None or session.sealed:
            raise ChatError(
                f"rollout {rollout_id} is not open",
                status=404,
                type="invalid_request_error",
                code="rollout_closed",
            )
        try:
            request = ChatRequest.parse(body)
            if request.n != 1:
                raise ChatRequestError("n must be 1: a rollout has one sample", param="n")
            number, prompt_tokens, answer = await session.answer(request, retry=is_client_retry.get())
        except ChatRequestError as error:
            session.refused[error.code] += 1
            kind = error.to_body()["error"]["type"]
            raise ChatError(error.message, status=error.status, type=kind, code=error.code) from error
        except ContextLengthError as error:
            session.refused[error.code] += 1
            raise ChatError(str(error), status=400, type="invalid_request_error", code=error.code) from error
        except EngineError as error:
            session.refused[error.code] += 1
            raise ChatError(
                f"the policy could not be sampled: {error}",
                status=503,
                type="server_error",
                code=error.code,
                infrastructure=True,
            ) from error
        completion = answer.completion
        used = usage(prompt_tokens, len(completion.token_ids), completion.cached_tokens)
        logprobs = (
            token_logprobs(self.codec, completion.token_ids, completion.logprobs)
            if request.logprobs
            else None
        )
        answered = choice(0, answer.message.to_message(), answer.finish_reason, logprobs)
        name = request.model or self._model_name
        return chat_completion(f"chatcmpl-{rollout_id}-{number}", name, int(time.time()), [answered], used)

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        """Usage, token ids and log-probabilities per call, for the rollout's trajectory document."""
        session = self._sessions.get(rollout_id)
        return trajectory_report(session.trace(), self._model_name) if session else None

    def discard(self, rollout_id: str) -> None:
        """The rollout is over: no more calls. Its trace stays until the trainer closes the session."""
        session = self._sessions.get(rollout_id)
        if session is not None:
            session.sealed = True

    def close(self, rollout_id: str) -> SessionTrace:
        """End the session and hand out its trace. Raises KeyError for a rollout that was not opened."""
        session = self._sessions.pop(rollout_id)
        session.sealed = True
        return session.trace()

    def view(self, trace: SessionTrace) -> dict[str, Any]:
        """The trajectory for the dashboard: messages, tokens and log-probabilities."""
        return trajectory_view(trace, self.codec)
