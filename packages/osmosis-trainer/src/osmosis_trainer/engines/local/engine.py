"""The local engine: sampler and learner in one process, on the CPU or one GPU."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from osmosis_trainer.engines.context import room
from osmosis_trainer.engines.local import adapters
from osmosis_trainer.engines.local.choose import build_decoder, new_cache
from osmosis_trainer.engines.local.requests import Request
from osmosis_trainer.engines.local.sampler import Sampler
from osmosis_trainer.engines.protocol import (
    POLICY,
    Completion,
    LossName,
    Objective,
    SamplingParams,
    TrainingRow,
)
from osmosis_trainer.errors import (
    ConfigError,
    EngineError,
    UnknownAdapterError,
)
from osmosis_trainer.learner import lora, saving
from osmosis_trainer.learner.base_model import load_base
from osmosis_trainer.learner.lora import LoraSettings
from osmosis_trainer.learner.packs import Form
from osmosis_trainer.learner.step import Learner

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

_SERVES = frozenset({"sample", "adapters"})
_TRAINS = frozenset({"train", "kl", "weight_decay", "temperature", "top_p", "overlap", "score"}) | {
    f"loss:{name}" for name in get_args(LossName)
}


@dataclass(frozen=True)
class LocalSettings:
    """How the engine runs. `lora` None serves without training.

    `slots` is the number of requests sampled at once. `max_context` None takes the model's own limit. `device` and
    `dtype` "auto": a GPU in bfloat16 when there is one, else the CPU in float32. `threads` None: one per two cores,
    because more are slower on a busy machine. `token_budget`: tokens of one training micro-batch.
    `weight_decay` is the decoupled one of AdamW. `recompute`: layers are computed again in the backward pass, which
    keeps a fraction of the memory for a third more time; None does so on a GPU.
    """

    lora: LoraSettings | None = None
    slots: int = 32
    max_context: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    token_budget: int = 8192
    batch_form: Form = "auto"
    weight_decay: float = 0.0
    recompute: bool | None = None


class LocalEngine:
    """See `Engine`. Made by `LocalEngine.load`; sampling and training run in threads of their own."""

    name = "local"

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerFast,
        settings: LocalSettings,
        log: Callable[[str], None] = logger.warning,
    ) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.policy_version = 0
        self.max_context = _max_context(model.config, settings.max_context)
        self.capabilities = _SERVES | (_TRAINS if settings.lora else set())
        threads = settings.threads or max(1, (os.cpu_count() or 2) // 2)
        device: torch.device = model.device
        decoder = build_decoder(model, self.max_context)
        self.decoder_name = decoder.name
        self._device = device
        cache = new_cache(model.config, settings.slots, self.max_context, model.dtype, device)
        self._sampler = Sampler(decoder, cache, device, threads)
        self._adapters: dict[str, adapters.LoraWeights] = {}
        self._loaded = 0
        self._work = ThreadPoolExecutor(
            1, "osmosis-learner", initializer=torch.set_num_threads, initargs=(threads,)
        )
        self._learner: Learner | None = None
        if settings.lora is not None:
            pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
            self._learner = Learner(
                lora.attach(model, settings.lora),
                pad,
                token_budget=settings.token_budget,
                form=settings.batch_form,
                weight_decay=settings.weight_decay,
                recompute=device.type == "cuda" if settings.recompute is None else settings.recompute,
                log=log,
            )
            self._adapters[POLICY] = adapters.snapshot(self._learner.model, POLICY, 0)

    @classmethod
    def load(
        cls, folder: Path, settings: LocalSettings, log: Callable[[str], None] = logger.warning
    ) -> LocalEngine:
        """Load the base model in `folder` (transformers format; nothing is downloaded). `log` is told when memory runs out.

        Raises UnsupportedModelError for an architecture that is no text model or cannot be sampled exactly, ConfigError for
        a bad setting.
        """
        model, tokenizer = load_base(folder, settings.device, settings.dtype)
        return cls(model, tokenizer, settings, log)

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        adapter: str | None = POLICY,
        on_token: Callable[[int, float], None] | None = None,
    ) -> Completion:
        """See `Engine.sample`. When prompt and `max_tokens` exceed the context, sampling ends where the context does."""
        prompt = list(prompt_ids)
        weights = self._weights(adapter)
        fits = room(prompt, params, self.max_context)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        seed = params.seed if params.seed is not None else random.SystemRandom().getrandbits(63)
        version = weights.version if weights is not None and weights.name == POLICY else self.policy_version
        request = Request(
            prompt=prompt,
            params=params,
            room=fits,
            weights=weights,
            policy_version=version,
            uniforms=random.Random(seed),
            loop=loop,
            future=future,
            on_token=on_token,
        )
        self._sampler.submit(request)
        try:
            return await future
        except asyncio.CancelledError:
            request.cancelled = True
            raise

    def _weights(self, adapter: str | None) -> adapters.LoraWeights | None:
        if adapter is None:
            return None
        try:
            return self._adapters[adapter]
        except KeyError:
            loaded = ", ".join(sorted(self._adapters)) or "none"
            raise UnknownAdapterError(f"no adapter is called {adapter!r}; loaded: {loaded}") from None

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU does the work."""
        return bool(self._device.type == "cuda")

    @property
    def sampling_counts(self) -> dict[str, int]:
        """Since the start: prompt tokens computed, prompt tokens reused, tokens sampled, forward passes."""
        sampler = self._sampler
        return {
            "prompt_tokens": sampler.prompt_tokens,
            "cached_tokens": sampler.cached_tokens,
            "sampled_tokens": sampler.sampled_tokens,
            "passes": sampler.passes,
        }

    # -- training ----------------------------------------------------------------------------------------------------

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        """See `Engine.forward_backward`; metrics are defined in docs/engine.md."""
        return await self._in_learner_thread(self._train().forward_backward, rows, objective)

    async def optim_step(self, *, lr: float, max_grad_norm: float) -> dict[str, float]:
        """See `Engine.optim_step`."""
        return await self._in_learner_thread(self._train().optim_step, lr, max_grad_norm)

    async def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        """Log-probabilities of the trained tokens of each row under the learner's current weights."""
        return await self._in_learner_thread(self._train().score, rows, temperature)

    async def rehearse(self) -> None:
        """Try a training pass of the longest rows; raises OutOfMemoryError when not even one fits into memory."""
        await self._in_learner_thread(self._train().rehearse, self.max_context)

    async def publish(self) -> int:
        """See `Engine.publish`. Samples in flight end with the version they began with."""
        version = self.policy_version + 1
        await self._in_learner_thread(self._publish, version)
        return version

    def _publish(self, version: int) -> None:
        self._adapters[POLICY] = adapters.snapshot(self._train().model, POLICY, version)
        self.policy_version = version
        self._sampler.forget(POLICY)

    def _train(self) -> Learner:
        if self._learner is None:
            raise EngineError(
                "this engine was loaded without an adapter to train; load it with LoRA settings"
            )
        return self._learner

    async def _in_learner_thread[T](self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._work, work, *arguments)

    # -- state -------------------------------------------------------------------------------------------------------

    async def save_state(self, folder: Path) -> None:
        """See `Engine.save_state`."""
        extra = {"policy_version": self.policy_version}
        await self._in_learner_thread(saving.save, self._train(), folder, extra)

    async def load_state(self, folder: Path) -> None:
        """See `Engine.load_state`; the loaded weights are published under the saved policy version."""
        if self.settings.lora is None:
            self._train()
        extra = await self._in_learner_thread(saving.load, self._train(), folder, self.settings.lora)
        await self._in_learner_thread(self._publish, int(extra["policy_version"]))

    async def export_adapter(self, folder: Path) -> None:
        """See `Engine.export_adapter`."""

        def export() -> None:
            with saving.atomic_folder(folder) as draft:
                lora.export(self._train().model, draft)

        await self._in_learner_thread(export)

    # -- other adapters ----------------------------------------------------------------------------------------------

    async def load_adapter(self, name: str, folder: Path) -> None:
        """See `Engine.load_adapter`. Loading a name again replaces it for later samples."""
        if name == POLICY and self._learner is not None:
            raise EngineError(f"{POLICY!r} is the adapter in training; load others under another name")
        self._loaded += 1
        weights = await asyncio.to_thread(adapters.read_folder, folder, name, self._loaded, self._device)
        self._adapters[name] = weights
        self._sampler.forget(name)

    async def unload_adapter(self, name: str) -> None:
        """See `Engine.unload_adapter`."""
        self._weights(name)
        del self._adapters[name]
        self._sampler.forget(name)

    async def close(self) -> None:
        """See `Engine.close`."""
        await asyncio.to_thread(self._sampler.close)
        self._work.shutdown()


def _max_context(config: Any, wanted: int | None) -> int:
    limit = int(config.max_position_embeddings)
    if wanted is not None and not 1 < wanted <= limit:
        raise ConfigError(f"max_context is {wanted}; this model allows 2 to {limit} tokens")
    return wanted or limit
