"""The local engine as the configuration of a run asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from osmosis_trainer.engines.local.engine import LocalEngine, LocalSettings
from osmosis_trainer.engines.model_limits import model_context
from osmosis_trainer.engines.opening import EngineRequest
from osmosis_trainer.learner.lora import LoraSettings
from osmosis_trainer.settings import RunSettings

_DEFAULT_SLOTS = 32
_MAX_SLOTS = 64


async def open_engine(request: EngineRequest) -> LocalEngine:
    """Load the base model (see `LocalEngine.load`) and, on a GPU, try the longest rows that can come."""
    engine = await asyncio.to_thread(load_engine, request.base_model, request.settings, request.log)
    if engine.on_gpu:
        try:
            await engine.rehearse()
        except BaseException:
            await engine.close()
            raise
    return engine


def load_engine(model: Path, settings: RunSettings, log: Callable[[str], None]) -> LocalEngine:
    """The engine of the configuration with the base model in the folder `model`; takes as long as reading the weights."""
    advanced, training = settings.advanced, settings.training
    return LocalEngine.load(
        model,
        LocalSettings(
            lora=LoraSettings(rank=advanced.lora_rank, alpha=advanced.lora_alpha, seed=advanced.seed % 2**32),
            slots=min(_MAX_SLOTS, advanced.max_concurrent_rollouts or _DEFAULT_SLOTS),
            max_context=min(model_context(model), training.max_prompt_length + training.max_response_length),
            threads=advanced.torch_threads,
            token_budget=advanced.tokens_per_micro_batch,
            weight_decay=advanced.weight_decay,
        ),
        log,
    )
