"""Harbor's own agents that a rollout may use, and how each is pointed at the policy."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harbor.models.trial.config import AgentConfig

logger = logging.getLogger(__name__)

# Clients of chat endpoints refuse to start without a key.
NO_KEY = "dummy"


@dataclass(frozen=True)
class NativeAgent:
    """An agent by its name at Harbor. ``wire`` gives it the address and the key of the policy; None: it calls no model."""

    name: str
    wire: Callable[[AgentConfig, str, str], None] | None

    @property
    def trainable(self) -> bool:
        """Whether its trajectory comes from the policy."""
        return self.wire is not None

    def configure(
        self,
        *,
        model_name: str,
        kwargs: Mapping[str, Any],
        chat_completions_url: str,
        api_key: str | None,
    ) -> AgentConfig:
        """Harbor's configuration of the agent. The policy's address and key win over ``kwargs``.

        Raises:
            ValueError: for an agent that calls a model, without an address.
        """
        config = self.unwired(model_name=model_name, kwargs=kwargs)
        if self.wire is None:
            return config
        if not chat_completions_url:
            raise ValueError(
                f"the agent {self.name!r} needs a chat_completions_url: run the backend behind create_rollout_server, or "
                "inside a RolloutContext"
            )
        self.wire(config, chat_completions_url, api_key or NO_KEY)
        return config

    def unwired(self, *, model_name: str, kwargs: Mapping[str, Any]) -> AgentConfig:
        """The configuration without address and key, good for installing the agent."""
        own = dict(kwargs)
        env = dict(own.pop("extra_env", None) or {})
        return AgentConfig(name=self.name, model_name=model_name, kwargs=own, env=env)


def _wire_terminus(config: AgentConfig, url: str, key: str) -> None:
    llm_kwargs = {**(config.kwargs.get("llm_kwargs") or {}), "api_key": key}
    # A summary would break the one conversation that is trained on.
    config.kwargs.update(api_base=url, llm_kwargs=llm_kwargs, enable_summarize=False)


def _wire_mini_swe(config: AgentConfig, url: str, key: str) -> None:
    config.env.update(
        OPENAI_API_BASE=url,
        OPENAI_BASE_URL=url,
        OPENAI_API_KEY=key,
        # The policy has no price.
        MSWEA_COST_TRACKING="ignore_errors",
    )


NATIVE_AGENTS = {
    agent.name: agent
    for agent in (
        NativeAgent("terminus-2", _wire_terminus),
        NativeAgent("mini-swe-agent", _wire_mini_swe),
        NativeAgent("oracle", None),
    )
}


def choose_native(
    agent: type | str | None, *, kwargs: Any, workflow_config: Any, bundle: Any
) -> NativeAgent | None:
    """The native agent that the backend's arguments name, None for a workflow.

    Raises:
        ValueError: for an unknown name, and for arguments that do not fit the agent.
    """
    if agent is None and bundle is None:
        raise ValueError("agent may be left out only with a prebuilt bundle")
    if not isinstance(agent, str) or ":" in agent:
        if kwargs is not None:
            raise ValueError("native_agent_kwargs are for one of Harbor's own agents, not for a workflow")
        return None
    native = NATIVE_AGENTS.get(agent)
    if native is None:
        raise ValueError(
            f"unknown native agent {agent!r}: expected one of {', '.join(sorted(NATIVE_AGENTS))}, or 'module:Class' for a workflow"
        )
    if workflow_config is not None:
        raise ValueError(f"workflow_config is for a workflow, not for the native agent {agent!r}")
    if not native.trainable:
        logger.warning("The agent %r is not trainable: it talks to no policy", agent)
    return native
