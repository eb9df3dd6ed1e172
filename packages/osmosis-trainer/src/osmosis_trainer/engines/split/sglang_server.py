"""SGLang's native server: token-id prompts to `/generate`, adapters through `/load_lora_adapter`."""

from __future__ import annotations

import uuid
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

# What a request leaves out may come from the model's generation_config.json; all of it must be said.
_PLAIN = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
    "skip_special_tokens": False,
}


class SglangServer:
    """See `SamplingServer`. The base model goes by the empty name: a request without `lora_path`."""

    def __init__(self, connection: Connection, *, send_seeds: bool = True) -> None:
        self.url = connection.url
        self._connection = connection
        self._send_seeds = send_seeds

    async def facts(self) -> ServerFacts:
        """See `SamplingServer.facts`."""
        answer = await self._connection.get("/get_server_info")
        if answer.status_code == 404:
            answer = await self._connection.get("/server_info")
        info = self._connection.json(answer)
        models = self._connection.json(await self._connection.get("/v1/models"))["data"]
        slots = info.get("max_loaded_loras") or info.get("max_loras_per_batch")
        bases = [model for model in models if not model.get("parent")]
        return ServerFacts(
            base="",
            max_context=bases[0].get("max_model_len") or info.get("context_length"),
            adapters=frozenset(model["id"] for model in models if model.get("parent")),
            slots=int(slots) if slots else None,
        )

    async def load(self, name: str, folder: str) -> None:
        """See `SamplingServer.load`."""
        answer = await self._connection.post("/load_lora_adapter", {"lora_name": name, "lora_path": folder})
        if answer.status_code != 200 or not self._connection.json(answer).get("success", True):
            raise SamplerFaultError(
                f"{self.url} does not load adapter {name}: {self._connection.reason(answer)}; start it with "
                "--enable-lora, --max-lora-rank and --lora-target-modules all"
            )

    async def unload(self, name: str) -> None:
        """See `SamplingServer.unload`. The server answers an unknown name like any other refusal, so none is raised."""
        await self._connection.post("/unload_lora_adapter", {"lora_name": name})

    async def sample(self, model: str, prompt: Sequence[int], params: SamplingParams) -> Sampled:
        """See `SamplingServer.sample`. The version is part of the request's id, which the answer repeats."""
        sampling = {
            "max_new_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "stop_token_ids": sorted(params.stop_ids),
            **_PLAIN,
        }
        if self._send_seeds and params.seed is not None:
            sampling["sampling_seed"] = params.seed
        rid = f"{model}/{uuid.uuid4().hex}"
        data = await self._generate(
            {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True, "rid": rid},
            model,
        )
        meta = data["meta_info"]
        finish = (meta.get("finish_reason") or {}).get("type")
        if finish not in ("stop", "length"):
            raise ServerLostError(f"{self.url} gave up a request: finish_reason {finish!r}")
        if meta.get("prompt_tokens", len(prompt)) != len(prompt):
            raise SamplerFaultError(
                f"{self.url} saw {meta['prompt_tokens']} prompt tokens where {len(prompt)} were sent"
            )
        pairs = self._given(meta, "output_token_logprobs")
        token_ids = [int(pair[1]) for pair in pairs]
        if "output_ids" in data and data["output_ids"] != token_ids:
            raise SamplerFaultError(f"{self.url} gives log-probabilities of other tokens than it sampled")
        return Sampled(
            token_ids=token_ids,
            logprobs=[float(pair[0]) for pair in pairs],
            finish_reason=finish,
            model=str(meta["id"]).rpartition("/")[0] if "id" in meta else None,
            prompt_ids=None,
            cached_tokens=int(meta.get("cached_tokens") or 0),
        )

    async def score(self, model: str, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `SamplingServer.score`."""
        sampling = {"max_new_tokens": 1, "temperature": 1.0, **_PLAIN}
        scores = []
        for prompt in prompts:
            body = {
                "input_ids": list(prompt),
                "sampling_params": sampling,
                "return_logprob": True,
                "logprob_start_len": 0,
            }
            pairs = self._given((await self._generate(body, model))["meta_info"], "input_token_logprobs")
            if [int(pair[1]) for pair in pairs] != list(prompt):
                raise SamplerFaultError(f"{self.url} scores other tokens than it was sent")
            scores.append([float(pair[0]) for pair in pairs[1:]])
        return scores

    async def _generate(self, body: dict[str, Any], model: str) -> dict[str, Any]:
        if model:
            body = body | {"lora_path": model}
        answer = await self._connection.post("/generate", body)
        if answer.status_code == 400 and model and model in answer.text:
            # After a restart the server does not know the adapters it was given.
            raise ServerLostError(f"{self.url}: {self._connection.reason(answer)}")
        data: dict[str, Any] = self._connection.json(answer)
        return data

    def _given(self, meta: dict[str, Any], field: str) -> Any:
        if not meta.get(field):
            raise SamplerFaultError(f"{self.url} returns no {field}, which training needs")
        return meta[field]

    async def close(self) -> None:
        """See `SamplingServer.close`."""
        await self._connection.close()
