"""The tinker engine as the configuration of a run asks for it."""

from __future__ import annotations

import os
from typing import cast
from urllib.parse import urlsplit

from osmosis_trainer.engines.opening import EngineRequest, require_capabilities
from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.engines.tinker.engine import TinkerEngine
from osmosis_trainer.engines.tinker.settings import FIXED_ALPHA, TinkerSettings
from osmosis_trainer.errors import ConfigError

URL_VARIABLE, KEY_VARIABLE = "TINKER_BASE_URL", "TINKER_API_KEY"


async def open_engine(request: EngineRequest) -> TinkerEngine:
    """Connect to the server and make the model; see `TinkerEngine.open`.

    Raises ConfigError before anything is made on the server when a setting cannot be honoured.
    """
    require_capabilities(cast(Engine, TinkerEngine), request.settings)
    return await TinkerEngine.open(engine_settings(request), request.log)


def engine_settings(request: EngineRequest) -> TinkerSettings:
    """The settings of the run as the engine's. Raises ConfigError."""
    advanced, training = request.settings.advanced, request.settings.training
    if advanced.lora_alpha != FIXED_ALPHA:
        raise ConfigError(
            f"the engine 'tinker' cannot honour [advanced] lora_alpha = {advanced.lora_alpha:g}: the Tinker API has no "
            f"field for it, servers use {FIXED_ALPHA:g}"
        )
    if advanced.torch_threads is not None:
        raise ConfigError("the engine 'tinker' cannot honour [advanced] torch_threads: the server computes")
    url, key = address_and_key(request)
    return TinkerSettings(
        url=url,
        api_key=key,
        base_model=advanced.tinker_model or request.base_name,
        model_folder=request.base_model,
        rank=advanced.lora_rank,
        seed=advanced.seed,
        max_context=training.max_prompt_length + training.max_response_length,
        token_budget=advanced.tokens_per_micro_batch,
        weight_decay=advanced.weight_decay,
        max_grad_norm=advanced.max_grad_norm,
        lease=request.work_dir / "tinker-models.json",
    )


def address_and_key(request: EngineRequest) -> tuple[str, str | None]:
    """Where the server is, and the key it is given.

    An address from the configuration gets a key only from the run's own secrets; the deployment's key goes to the
    deployment's address alone, so that no run can send it elsewhere.
    """
    advanced = request.settings.advanced
    url, key = advanced.tinker_url, request.secret("tinker_key")
    if url is None:
        url = os.environ.get(URL_VARIABLE)
        key = key or os.environ.get(KEY_VARIABLE)
    if not url:
        raise ConfigError(
            f"the engine 'tinker' needs the address of a server: set [advanced] tinker_url (or {URL_VARIABLE} in the "
            "environment of the deployment)"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise ConfigError(
            "[advanced] tinker_url must be an http:// or https:// address without user, password or query"
        )
    return url, key
