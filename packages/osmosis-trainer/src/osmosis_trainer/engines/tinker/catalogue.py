"""What the server says it has."""

from __future__ import annotations

from typing import Any

from osmosis_trainer.engines.tinker.futures import accepted
from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.engines.tinker.settings import TinkerSettings
from osmosis_trainer.errors import ConfigError

_REFUSES_KEY = frozenset({401, 403})
_SHOWN = 20


async def require_model(transport: Transport, settings: TinkerSettings) -> list[dict[str, Any]]:
    """The models of the server. Raises ConfigError when it refuses the key or does not have the base model."""
    place = "get_server_capabilities"
    response = await transport.request("GET", f"/api/v1/{place}")
    if response.status_code in _REFUSES_KEY:
        which = "the API key" if settings.api_key else "requests without an API key"
        raise ConfigError(f"the server at {settings.url} refuses {which} (status {response.status_code})")
    if response.status_code == 404:
        raise ConfigError(f"{settings.url} is no server of the Tinker API: it does not know /api/v1/{place}")
    models: list[dict[str, Any]] = accepted(response, place).get("supported_models") or []
    names = [str(model.get("model_name")) for model in models]
    if settings.base_model not in names:
        raise ConfigError(
            f"the server at {settings.url} has no model {settings.base_model!r}; it has {', '.join(names[:_SHOWN]) or 'none'}. "
            "Set [advanced] tinker_model to the name it has there"
        )
    return models


def server_context(models: list[dict[str, Any]], settings: TinkerSettings) -> int | None:
    """Longest sequence, in tokens, that the server says it takes for the base model; None when it does not say."""
    for model in models:
        if model.get("model_name") == settings.base_model and model.get("max_context_length"):
            return int(model["max_context_length"])
    return None
