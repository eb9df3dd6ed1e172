"""vLLM's OpenAI server: token-id prompts to `/v1/completions`, adapters through `/v1/load_lora_adapter`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.engines.split.wire import (
    Connection,
    Sampled,
    SamplerFaultError,
    ServerFacts,
    ServerLostError,
)
from osmosis_trainer.errors import EngineError

_SLOTS = re.compile(r'^vllm:lora_requests_info\{[^}]*max_lora="(\d+)"', re.MULTILINE)

# Servers take what a request leaves out from the model's generation_config.json; all of it must be said.
_PLAIN = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
}


class VllmServer:
    """See `SamplingServer`."""

    def __init__(self, connection: Connection, *, send_seeds: bool = True) -> None:
        self.url = connection.url
        self._connection = connection
        self._send_seeds = send_seeds

    async def facts(self) -> ServerFacts:
        """See `SamplingServer.facts`. The slots are known only after the first sampled token."""
        models = self._connection.json(await self._connection.get("/v1/models"))["data"]
        metrics = await self._connection.get("/metrics")
        found = _SLOTS.search(metrics.text) if metrics.status_code == 200 else None
        bases = [model for model in models if not model.get("parent")]
        return ServerFacts(
            base=bases[0]["id"],
            max_context=bases[0].get("max_model_len"),
            adapters=frozenset(model["id"] for model in models if model.get("parent")),
            slots=int(found[1]) if found else None,
        )

    async def load(self, name: str, folder: str) -> None:
        """See `SamplingServer.load`."""
        body = {"lora_name": name, "lora_path": folder}
        answer = await self._connection.post("/v1/load_lora_adapter", body)
        if answer.status_code != 200:
            hint = (
                "; start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
                if answer.status_code == 404 and "lora" not in answer.text.lower()
                else ""
            )
            raise SamplerFaultError(
                f"{self.url} does not load adapter {name}: {self._connection.reason(answer)}{hint}"
            )

    async def unload(self, name: str) -> None:
        """See `SamplingServer.unload`."""
        answer = await self._connection.post("/v1/unload_lora_adapter", {"lora_name": name})
        if answer.status_code not in (200, 404):
            raise EngineError(f"{self.url} does not unload adapter {name}: {self._connection.reason(answer)}")

    async def sample(self, model: str, prompt: Sequence[int], params: SamplingParams) -> Sampled:
        """See `SamplingServer.sample`."""
        body = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "stop_token_ids": sorted(params.stop_ids),
            "logprobs": 0,
            "return_token_ids": True,
            **_PLAIN,
        }
        if self._send_seeds and params.seed is not None:
            body["seed"] = params.seed
        data = await self._complete(body)
        choice = data["choices"][0]
        if choice["finish_reason"] not in ("stop", "length"):
            raise ServerLostError(f"{self.url} gave up a request: finish_reason {choice['finish_reason']!r}")
        usage = data.get("usage") or {}
        return Sampled(
            token_ids=self._given(choice, "token_ids"),
            logprobs=self._given(choice, "logprobs")["token_logprobs"],
            finish_reason=choice["finish_reason"],
            model=data["model"],
            prompt_ids=self._given(choice, "prompt_token_ids"),
            cached_tokens=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
        )

    async def score(self, model: str, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `SamplingServer.score`."""
        body = {
            "model": model,
            "prompt": [list(prompt) for prompt in prompts],
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
            **_PLAIN,
        }
        choices = sorted((await self._complete(body))["choices"], key=lambda choice: choice["index"])
        scores = []
        for prompt, choice in zip(prompts, choices, strict=True):
            places = self._given(choice, "prompt_logprobs")
            scores.append(
                [
                    float(place[str(token)]["logprob"])
                    for token, place in zip(prompt[1:], places[1:], strict=True)
                ]
            )
        return scores

    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._connection.post("/v1/completions", body)
        if answer.status_code == 404:
            # After a restart the server does not know the adapters it was given.
            raise ServerLostError(f"{self.url}: {self._connection.reason(answer)}")
        data: dict[str, Any] = self._connection.json(answer)
        return data

    def _given(self, choice: dict[str, Any], field: str) -> Any:
        if choice.get(field) is None:
            raise SamplerFaultError(
                f"{self.url} returns no {field}: a vLLM server that knows return_token_ids (0.10.2 or newer) is needed"
            )
        return choice[field]

    async def close(self) -> None:
        """See `SamplingServer.close`."""
        await self._connection.close()
