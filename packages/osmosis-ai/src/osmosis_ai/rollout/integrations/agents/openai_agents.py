"""OpenAI Agents whose model is the policy of the running rollout. Needs the ``openai-agents`` extra.

Importing this module removes the framework's trace exporter, which would send conversations to OpenAI whenever an
``OPENAI_API_KEY`` is set. Processors added later with ``agents.add_trace_processor`` work as usual.
"""

import copy
import dataclasses
import uuid
from collections.abc import AsyncIterator
from typing import Any

from osmosis_ai.extras import extra
from osmosis_ai.rollout.context import RolloutContext, get_rollout_context

with extra("openai-agents"):
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, set_trace_processors
    from agents.items import ModelResponse
    from agents.memory.session import SessionABC
    from agents.models.chatcmpl_converter import Converter  # noqa: F401 - reachable here, where users look for it
    from agents.models.interface import Model
    from agents.usage import Usage

    from osmosis_ai.rollout.integrations.agents.policy_client import (
        MODEL_ID,
        PolicyClient,
        require_rollout_context,
        split_request_fields,
    )
    from osmosis_ai.rollout.integrations.agents.session_transcript import SessionSampleSource, annotate_output

__all__ = [
    "OsmosisAgent",
    "OsmosisLitellmModel",
    "OsmosisMemorySession",
    "OsmosisRolloutModel",
    "SessionSampleSource",
]

set_trace_processors([])


class OsmosisRolloutModel(Model):  # type: ignore[misc]
    """Stands for the policy until an :class:`OsmosisAgent` is constructed inside a rollout.

    Sampling options belong into the agent's ``ModelSettings``. Keyword arguments go to the framework's chat-completions model.
    """

    def __init__(self, **litellm_kwargs: Any) -> None:
        self.litellm_kwargs = litellm_kwargs

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a placeholder has no endpoint."""
        raise NotImplementedError(_PLACEHOLDER_MESSAGE)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a placeholder has no endpoint."""
        raise NotImplementedError(_PLACEHOLDER_MESSAGE)


_PLACEHOLDER_MESSAGE = (
    "OsmosisRolloutModel is a placeholder; pass it to OsmosisAgent(model=...) inside AgentWorkflow.run()"
)


class OsmosisPolicyModel(OpenAIChatCompletionsModel):  # type: ignore[misc]
    """The framework's chat-completions model, bound to the URL of the running rollout. It always streams.

    Raises:
        RuntimeError: when constructed outside of a rollout, or called in one without an :class:`OsmosisMemorySession`.
    """

    def __init__(self, **model_kwargs: Any) -> None:
        rollout = require_rollout_context("OsmosisPolicyModel")
        self.base_url = rollout.chat_completions_url
        self.api_key = rollout.api_key
        client = PolicyClient(base_url=self.base_url, api_key=self.api_key)
        super().__init__(model=MODEL_ID, openai_client=client, **model_kwargs)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """The whole answer, put together from the stream; no output when the stream does not complete."""
        completed = None
        async for event in self.stream_response(*args, **kwargs):
            if event.type == "response.completed":
                completed = event.response
        if completed is None:
            return ModelResponse(output=[], usage=Usage(requests=1), response_id=None)
        return ModelResponse(output=completed.output, usage=_usage(completed.usage), response_id=None)

    async def stream_response(
        self, system_instructions: Any, input: Any, model_settings: ModelSettings, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """The framework's events. The completed answer notes usage and time on its first item, for the trajectory."""
        # A connection must not outlive its call: the rollout's event loop may end with it.
        async with PolicyClient(base_url=self.base_url, api_key=self.api_key) as client:
            call = copy.copy(self)
            call._client = client
            events = OpenAIChatCompletionsModel.stream_response(
                call, system_instructions, input, _policy_settings(model_settings), *args, **kwargs
            )
            async for event in events:
                if event.type == "response.completed":
                    response = event.response
                    annotate_output(response.output, usage=response.usage, created_at=response.created_at)
                yield event

    def _merge_headers(self, model_settings: ModelSettings) -> Any:
        rollout = get_rollout_context()
        if rollout is None or rollout.sample_source is None:
            raise RuntimeError(
                "the policy may only be called with a session that records the conversation: construct one "
                "OsmosisMemorySession inside AgentWorkflow.run() and pass it to Runner.run(..., session=session)"
            )
        return super()._merge_headers(model_settings)


OsmosisLitellmModel = OsmosisPolicyModel


class OsmosisAgent(Agent):  # type: ignore[misc]
    """An OpenAI agent; an :class:`OsmosisRolloutModel` is replaced by the policy of the running rollout.

    Raises:
        RuntimeError: with the placeholder outside of a rollout.
    """

    def __init__(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        if isinstance(model, OsmosisRolloutModel):
            model = OsmosisPolicyModel(**model.litellm_kwargs)
        super().__init__(*args, model=model, **kwargs)


class OsmosisMemorySession(SessionABC):  # type: ignore[misc]
    """An in-memory session whose items become the sample of the rollout it is constructed in.

    Outside of a rollout it is a plain in-memory session.

    Raises:
        ValueError: when the rollout already has a session or agent.
    """

    def __init__(self) -> None:
        self.session_id = uuid.uuid4().hex
        self.items: list[Any] = []
        self._rollout: RolloutContext | None = get_rollout_context()
        if self._rollout is not None:
            self._rollout.set_sample_source(SessionSampleSource(self))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, or the last ``limit`` of them (0 means all)."""
        self._check_registered()
        return list(self.items[-limit:] if limit else self.items)

    async def add_items(self, items: list[Any]) -> None:
        """Append items."""
        self._check_registered()
        self.items.extend(items)

    async def pop_item(self) -> Any | None:
        """Remove and return the last item, or None."""
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        """Remove all items."""
        self.items.clear()

    def _check_registered(self) -> None:
        current = get_rollout_context()
        if current is not None and current is not self._rollout:
            raise RuntimeError(
                "this OsmosisMemorySession is not registered with the current rollout; construct it inside AgentWorkflow.run()"
            )


def _policy_settings(settings: ModelSettings) -> ModelSettings:
    """Ask for usage unless told otherwise, and move arguments the client does not know into the body."""
    known, unknown = split_request_fields(settings.extra_args or {})
    changes: dict[str, Any] = {}
    if settings.include_usage is None:
        changes["include_usage"] = True
    if unknown:
        changes |= {"extra_args": known, "extra_body": {**unknown, **(settings.extra_body or {})}}
    return dataclasses.replace(settings, **changes)


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details,
    )
