"""Strands agents whose model is the policy of the running rollout. Needs the ``strands`` extra."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from osmosis_ai.extras import extra
from osmosis_ai.rollout.context import RolloutContext, SampleSource
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.utils.messages import map_initial_messages_to_content_blocks

with extra("strands"):
    from strands import Agent as StrandsAgent
    from strands.hooks import MessageAddedEvent
    from strands.models.openai import OpenAIModel

    from osmosis_ai.rollout.integrations.agents.policy_client import (
        MODEL_ID,
        WIRE_MODEL,
        PolicyClient,
        require_rollout_context,
        split_request_fields,
    )

__all__ = ["OsmosisRolloutModel", "OsmosisStrandsAgent", "StrandsAgentSampleSource"]

logger = logging.getLogger(__name__)


class OsmosisPolicyModel(OpenAIModel):  # type: ignore[misc]
    """Strands' OpenAI model, bound to the chat-completions URL of one rollout."""

    def __init__(
        self, *, rollout: RolloutContext, client_args: Mapping[str, Any] | None = None, **model_config: Any
    ) -> None:
        super().__init__(
            client_args={
                **(client_args or {}),
                "api_base": rollout.chat_completions_url,
                "api_key": rollout.api_key,
            },
            **{**model_config, "model_id": MODEL_ID},
        )

    def format_request(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Strands' request, with sampling parameters the client has no argument for moved into ``extra_body``."""
        request, unknown = split_request_fields(super().format_request(*args, **kwargs))
        if unknown:
            request["extra_body"] = {**unknown, **(request.get("extra_body") or {})}
        return request

    @asynccontextmanager
    async def _get_client(self) -> AsyncIterator[PolicyClient]:
        options = dict(self.client_args)
        options["base_url"] = options.pop("api_base")
        async with PolicyClient(**options) as client:
            yield client


LiteLLMModel = OsmosisPolicyModel


class OsmosisRolloutModel(OsmosisPolicyModel):
    """Stands for the policy until an agent is constructed inside a rollout.

    Takes Strands' model options except the model id: ``params={"temperature": ..., "max_tokens": ...}``, ``stream=False``,
    and ``client_args`` for the OpenAI client (``timeout``, ``max_retries``).
    """

    def __init__(self, **litellm_kwargs: Any) -> None:
        # The parent needs a running rollout; this object is made before there is one and may be copied with its config.
        self.litellm_kwargs = litellm_kwargs
        self.config = {"model_id": MODEL_ID, **litellm_kwargs}

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a placeholder has no endpoint."""
        raise NotImplementedError(
            "OsmosisRolloutModel is a placeholder; pass it to OsmosisStrandsAgent inside AgentWorkflow.run()"
        )

    structured_output = stream


class OsmosisStrandsAgent(StrandsAgent):  # type: ignore[misc]
    """A Strands agent that talks to the policy and whose conversation becomes the rollout's sample.

    With an :class:`OsmosisRolloutModel` it must be constructed inside ``run()``; with any other model it is an ordinary Strands
    agent and leaves no sample. ``messages`` may be ``ctx.prompt`` as it is.

    Raises:
        RuntimeError: with the placeholder outside of a rollout.
        ValueError: when the rollout already has an agent or session.
    """

    def __init__(self, model: Any = None, messages: Any = None, *args: Any, **kwargs: Any) -> None:
        if messages and isinstance(messages, list):
            messages = map_initial_messages_to_content_blocks(messages)
        source: StrandsAgentSampleSource | None = None
        if isinstance(model, OsmosisRolloutModel):
            rollout = require_rollout_context("OsmosisStrandsAgent with an OsmosisRolloutModel")
            model = OsmosisPolicyModel(rollout=rollout, **model.litellm_kwargs)
            source = StrandsAgentSampleSource(self)
            rollout.set_sample_source(source)
        if args:
            super().__init__(model, messages, *args, **kwargs)
        else:
            super().__init__(model=model, messages=messages, **kwargs)
        if source is not None:
            source.watch()


class StrandsAgentSampleSource(SampleSource):
    """The conversation of one Strands agent."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        # Strands keeps no times; messages are remembered with theirs, because an id is only unique while its object lives.
        self._added: dict[int, tuple[Any, datetime]] = {}

    def watch(self) -> None:
        """Note from now on when each message is added; an agent that keeps no hooks has messages without times."""
        if hooks := getattr(self.agent, "hooks", None):
            hooks.add_callback(MessageAddedEvent, self._note)

    def _note(self, event: Any) -> None:
        self._added[id(event.message)] = (event.message, datetime.now(UTC))

    async def get_sample(self) -> RolloutSample:
        """The native messages, and their chat form with usage, model and times for the trajectory."""
        messages = list(self.agent.messages)
        trajectory: list[dict[str, Any]] | None
        try:
            trajectory = self._chat_messages(messages)
        except Exception as error:
            logger.warning("Failed to convert Strands messages for trajectory persistence: %s", error)
            trajectory = None
        return RolloutSample(messages=messages, trajectory_messages=trajectory)

    def _chat_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        facts = [self._facts(message) for message in messages]
        if not any(facts):
            return list(LiteLLMModel.format_request_messages(list(messages)))
        return [
            chat
            for message, known in zip(messages, facts, strict=True)
            for chat in _with_facts(message, known)
        ]

    def _facts(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a message beyond its content: when it was added, and the model call that wrote it."""
        facts = _call_facts(message) if message["role"] == "assistant" else {}
        if (noted := self._added.get(id(message))) is not None:
            facts["created_at"] = noted[1].isoformat()
        return facts


def _with_facts(message: Mapping[str, Any], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    converted: list[dict[str, Any]] = LiteLLMModel.format_request_messages([_without_reasoning(message)])
    if message["role"] == "assistant" and not converted:
        # Strands leaves out a turn without text or calls; here it stands for a model call that took place.
        converted = [{"role": "assistant", "content": ""}]
    return [{**chat, **facts} for chat in converted]


def _without_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    # The chat form has its own field for reasoning; Strands would warn and drop it.
    content = [block for block in message["content"] if "reasoningContent" not in block]
    return {"role": message["role"], "content": content}


def _call_facts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Usage, model and reasoning of the model call that wrote an assistant message; nothing for messages of the prompt."""
    facts: dict[str, Any] = {}
    if reasoning := [
        block["reasoningContent"].get("reasoningText", {}).get("text", "")
        for block in message["content"]
        if "reasoningContent" in block
    ]:
        facts["reasoning_content"] = "\n".join(reasoning)
    usage = (message.get("metadata") or {}).get("usage")
    if usage is None:
        return facts
    facts["model"] = WIRE_MODEL
    if usage.get("totalTokens"):  # all zeros mean that the endpoint reported nothing
        facts["usage"] = {
            "prompt_tokens": usage.get("inputTokens"),
            "completion_tokens": usage.get("outputTokens"),
            "total_tokens": usage.get("totalTokens"),
            "cached_tokens": usage.get("cacheReadInputTokens"),
        }
    return facts
