"""What follows from the name of a judge: its provider, how LiteLLM calls it, its API key, how long it may take."""

import os
from dataclasses import dataclass, field

from osmosis_ai.provider_names import KEY_VARIABLES

DEFAULT_REQUEST_TIMEOUT_SECONDS = 30.0

_PREFIXES = {
    "openai": ("gpt-", "o1-", "o3-", "o4-"),
    "anthropic": ("claude",),
    "gemini": ("gemini",),
    "xai": ("grok",),
}
_TIMEOUTS = {"xai": 45.0, "gemini": 45.0, "cerebras": 60.0, "openrouter": 60.0}
_GROK_4_TIMEOUT = 60.0

# One part of several credentials: it must be there, and LiteLLM reads it together with the others itself.
_NOT_AN_API_KEY = frozenset({"bedrock", "vertex_ai"})


def parse_provider(model: str) -> str | None:
    """The text before the first slash, in lower case; else what the name begins like; else None."""
    name, slash, _ = model.strip().partition("/")
    if slash:
        return name.lower() or None
    bare = name.lower()
    return next((provider for provider, starts in _PREFIXES.items() if bare.startswith(starts)), None)


def to_litellm_model(model: str) -> str:
    """The name for LiteLLM: OpenAI's bare names get ``openai/``."""
    name = model.strip()
    return f"openai/{name}" if "/" not in name and parse_provider(name) == "openai" else name


def default_timeout_for_model(model: str) -> float:
    """Seconds that one request may take: reasoning and relaying providers get more."""
    provider = parse_provider(model)
    if provider == "xai" and model.strip().lower().removeprefix("xai/").startswith("grok-4"):
        return _GROK_4_TIMEOUT
    return _TIMEOUTS.get(provider or "", DEFAULT_REQUEST_TIMEOUT_SECONDS)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The key for a judge. ``value`` is None when there is none; ``variable`` is what to set, None if the provider has no known one.

    ``for_litellm`` is what LiteLLM is given; without it LiteLLM looks for credentials itself.
    """

    value: str | None = field(repr=False)
    variable: str | None
    for_litellm: str | None = field(repr=False)

    @property
    def is_missing(self) -> bool:
        """Whether a provider that is known to need a key has none."""
        return self.value is None and self.variable is not None


def resolve_api_key(provider: str | None, argument: str | None) -> ApiKey:
    """The argument, else the provider's environment variable; ``<PROVIDER>_API_KEY`` for providers that are not in the table."""
    variable = KEY_VARIABLES.get(provider or "")
    given = (argument or "").strip() or None
    if given is not None:
        return ApiKey(given, variable, given)
    found = os.environ.get(variable or _conventional_variable(provider), "").strip() or None
    return ApiKey(found, variable, None if provider in _NOT_AN_API_KEY else found)


def _conventional_variable(provider: str | None) -> str:
    return f"{provider.upper().replace('-', '_')}_API_KEY" if provider else ""
