"""From settings to a model on the server that is ready to be trained and sampled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import AutoTokenizer

from osmosis_trainer.engines.model_limits import model_context
from osmosis_trainer.engines.tinker.catalogue import require_model, server_context
from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.engines.tinker.lease import Lease
from osmosis_trainer.engines.tinker.living import LivingModel
from osmosis_trainer.engines.tinker.model import unload
from osmosis_trainer.engines.tinker.probe import Probe
from osmosis_trainer.engines.tinker.sampling import RemoteSampler
from osmosis_trainer.engines.tinker.settings import NO_CLIPPING, TinkerSettings
from osmosis_trainer.engines.tinker.trial import Behaviour, measure
from osmosis_trainer.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Connection:
    """What the engine works with. `max_context` is in tokens."""

    settings: TinkerSettings
    transport: Transport
    tokenizer: PreTrainedTokenizerFast
    max_context: int
    sampler: RemoteSampler
    model: LivingModel


async def connect(settings: TinkerSettings, log: Callable[[str], None]) -> Connection:
    """Make the model on the server and publish its first version.

    Raises ConfigError for a server, model or setting that cannot be used, ServerError when the server fails.
    """
    tokenizer = await asyncio.to_thread(_tokenizer, settings)
    transport = Transport(settings.url, settings.api_key, settings.patience_s)
    try:
        models = await require_model(transport, settings)
        limits = (
            model_context(settings.model_folder),
            server_context(models, settings),
            settings.max_context,
        )
        context = min(limit for limit in limits if limit)
        lease = Lease(settings.lease)
        for model_id in lease.held:
            await unload(transport, lease, model_id)
        behaviour = await measure(transport, settings, lease, len(tokenizer))
        _require_clipping(behaviour, settings)
        log(
            f"tinker server {settings.url}: it adds up the losses of a step as {behaviour.reduction} and "
            f"{'clips' if behaviour.clips else 'does not clip'} gradients"
        )
        sampler = RemoteSampler(transport, settings.base_model, tokenizer.eos_token_id, settings.result_s)
        probe = Probe(len(tokenizer), context, settings.probe_tolerance)
        model = LivingModel(transport, settings, lease, behaviour.reduction, sampler, probe, log)
        await model.begin()
    except BaseException:
        await transport.close()
        raise
    return Connection(settings, transport, tokenizer, context, sampler, model)


def _tokenizer(settings: TinkerSettings) -> Any:
    """The base model's tokenizer. Raises ConfigError when it has more tokens than the model."""
    tokenizer = AutoTokenizer.from_pretrained(settings.model_folder, local_files_only=True)
    file = settings.model_folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    size = (config | config.get("text_config", {})).get("vocab_size")
    if not isinstance(size, int) or len(tokenizer) > size:
        raise ConfigError(
            f"the tokenizer in {settings.model_folder} has {len(tokenizer)} tokens, but {file.name} says {size}"
        )
    return tokenizer


def _require_clipping(behaviour: Behaviour, settings: TinkerSettings) -> None:
    if not behaviour.clips and settings.max_grad_norm < NO_CLIPPING:
        raise ConfigError(
            f"the server at {settings.url} does not clip gradients (it ignores grad_clip_norm), so [advanced] "
            f"max_grad_norm = {settings.max_grad_norm:g} cannot be honoured; set it to {NO_CLIPPING:g}, which means no "
            "clipping, or use another server"
        )
