"""Sampling requests: completions, and the base model's view of a sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from osmosis_trainer.engines.protocol import Completion, SamplingParams
from osmosis_trainer.engines.tinker.errors import ServerError
from osmosis_trainer.engines.tinker.futures import result, submit
from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.engines.tinker.wire import completion, model_input, sampling_params

_REFERENCE_REQUESTS = 16


class RemoteSampler:
    """Samples from saved weights or from the base model. `eos` is the id at which a server may stop by itself."""

    def __init__(self, transport: Transport, base_model: str, eos: int | None, result_s: float) -> None:
        self._transport = transport
        self._base_model = base_model
        self._eos = eos
        self._result_s = result_s

    async def sample(
        self, path: str | None, prompt: Sequence[int], params: SamplingParams, room: int, version: int
    ) -> Completion:
        """One completion of at most `room` tokens from the weights at `path` (None: the base model)."""
        answer = await self._ask(path, prompt, sampling_params(params, room), "sampling")
        return completion(answer, params, room, self._eos, version)

    async def reference(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token but the first of each sequence under the base model, adapter off."""
        places = asyncio.Semaphore(_REFERENCE_REQUESTS)

        async def one(tokens: Sequence[int]) -> list[float]:
            async with places:
                return await self._prompt_logprobs(tokens)

        return list(await asyncio.gather(*map(one, sequences)))

    async def _prompt_logprobs(self, tokens: Sequence[int]) -> list[float]:
        what = "scoring with the base model"
        # The API scores a prompt only on the way to a sample; one token is the shortest.
        params = sampling_params(SamplingParams(max_tokens=1, seed=0), 1)
        answer = await self._ask(None, tokens, params, what, prompt_logprobs=True)
        given = answer.get("prompt_logprobs") or []
        # Servers differ in whether the first token, which nothing predicts, has an entry.
        values = given[-(len(tokens) - 1) :]
        if len(given) not in (len(tokens), len(tokens) - 1) or None in values:
            raise ServerError(
                f"{what}: the server gave {len(given)} log-probabilities for {len(tokens)} tokens; "
                "kl_coef needs a server that scores prompts"
            )
        return [float(value) for value in values]

    async def _ask(
        self, path: str | None, prompt: Sequence[int], params: dict[str, Any], what: str, **fields: Any
    ) -> dict[str, Any]:
        source = {"base_model": self._base_model} if path is None else {"model_path": path}
        body = {
            "num_samples": 1,
            "prompt": model_input(prompt),
            "sampling_params": params,
            "type": "sample",
            **source,
            **fields,
        }
        pending = await submit(self._transport, "asample", body, repeatable=True)
        return await result(self._transport, pending["request_id"], what, self._result_s)
