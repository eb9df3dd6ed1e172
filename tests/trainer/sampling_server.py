"""A sampling server that speaks vLLM's and SGLang's wire formats over the embedded sampler, with faults on demand.

Prompts are scored by PEFT over transformers: another implementation than the learner's.
"""

from __future__ import annotations

import asyncio
import json
import socket
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from peft import PeftModel
from transformers import AutoModelForCausalLM

from osmosis_trainer.engines.local import LocalEngine, LocalSettings
from osmosis_trainer.engines.protocol import Completion, SamplingParams

BASE = "base-model"


@dataclass
class Faults:
    """What goes wrong. Counters count down; `hang` keeps answers back until it is set."""

    errors: int = 0
    stale: bool = False
    echo: str | None = None
    ignore_load: bool = False
    hang: asyncio.Event | None = None


@dataclass
class SamplingServer:
    """`raw`: log-probabilities leave temperature and top-p out, as vLLM's do by default."""

    base: Path
    slots: int = 4
    raw: bool = False
    key: str | None = None
    port: int = 0
    faults: Faults = field(default_factory=Faults)
    loaded: dict[str, str] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    cancelled: int = 0
    open: int = 0

    async def start(self) -> str:
        """Serve on the port of before, without adapters, as after a crash; returns the address."""
        self.loaded = {}
        self._engine = await asyncio.to_thread(
            LocalEngine.load, self.base, LocalSettings(slots=32, threads=1)
        )
        self._scorer: Any = None
        self._reference = AutoModelForCausalLM.from_pretrained(self.base).eval()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server._serve([listener]))
        async with asyncio.timeout(60):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
                await asyncio.sleep(0.01)
        return self.url

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def kill(self) -> None:
        """Cut all connections and be gone."""
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        self._server.should_exit = self._server.force_exit = True
        await self._task
        await self._engine.close()

    # -- the model ---------------------------------------------------------------------------------------------------

    async def load(self, name: str, folder: str) -> None:
        self.history.append(f"load {name}")
        if not Path(folder).is_dir():
            raise HTTPException(404, f"No adapter found for '{folder}' for LoRA {name}")
        if self.faults.stale and self.loaded:
            folder = list(self.loaded.values())[-1]
        self.loaded[name] = folder
        await self._engine.load_adapter(name, Path(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._scorer is None:
                self._scorer = PeftModel.from_pretrained(self._reference, folder, adapter_name=name)
            else:
                self._scorer.load_adapter(folder, adapter_name=name)

    async def unload(self, name: str) -> None:
        self.history.append(f"unload {name}")
        del self.loaded[name]
        await self._engine.unload_adapter(name)
        if len(self._scorer.peft_config) > 1:
            self._scorer.delete_adapter(name)

    def score(self, name: str, ids: Sequence[int]) -> list[float]:
        """Log-probabilities at temperature 1 of all tokens but the first."""
        with torch.no_grad():
            if name == BASE and self._scorer is not None:
                with self._scorer.disable_adapter():
                    logits = self._scorer(input_ids=torch.tensor([list(ids)])).logits
            elif name == BASE:
                logits = self._reference(input_ids=torch.tensor([list(ids)])).logits
            else:
                self._scorer.set_adapter(name)
                logits = self._scorer(input_ids=torch.tensor([list(ids)])).logits
        logprobs = torch.log_softmax(logits[0, :-1].float(), -1)
        return [float(logprobs[place, token]) for place, token in enumerate(ids[1:])]

    async def complete(self, name: str, prompt: list[int], params: SamplingParams) -> Completion:
        self.open += 1
        try:
            if self.faults.hang is not None:
                await self.faults.hang.wait()
            adapter = None if name == BASE else name
            sampled = await self._engine.sample(prompt, params, adapter=adapter)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1
        if self.raw:
            scores = self.score(name, [*prompt, *sampled.token_ids])[len(prompt) - 1 :]
            return Completion(sampled.token_ids, scores, sampled.finish_reason, 0)
        return sampled

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.middleware("http")
        async def gate(request: Request, call_next: Any) -> Response:
            if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
                return JSONResponse({"error": "Unauthorized"}, 401)
            if self.faults.errors and request.method == "POST":
                self.faults.errors -= 1
                return JSONResponse({"error": {"message": "EngineDeadError"}}, 500)
            return await call_next(request)

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            adapters = [{"id": name, "parent": BASE} for name in self.loaded]
            return {
                "data": [{"id": BASE, "parent": None, "max_model_len": self._engine.max_context}, *adapters]
            }

        @app.get("/metrics")
        async def metrics() -> PlainTextResponse:
            labels = f'max_lora="{self.slots}",running_lora_adapters="",waiting_lora_adapters=""'
            return PlainTextResponse(
                f"# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{{{labels}}} 1\n"
            )

        @app.post("/v1/load_lora_adapter")
        async def load(request: Request) -> Response:
            body = await request.json()
            if body["lora_name"] in self.loaded:
                return JSONResponse({"error": {"message": "has already been loaded"}}, 400)
            await self.load(body["lora_name"], body["lora_path"])
            return PlainTextResponse("Success")

        @app.post("/v1/unload_lora_adapter")
        async def unload(request: Request) -> Response:
            name = (await request.json())["lora_name"]
            if name not in self.loaded:
                return JSONResponse({"error": {"message": "cannot be found"}}, 404)
            await self.unload(name)
            return PlainTextResponse("Success")

        @app.post("/v1/completions")
        async def completions(request: Request) -> Response:
            body = await request.json()
            self.requests.append(body)
            name, prompts = body["model"], body["prompt"]
            if name not in (BASE, *self.loaded):
                message = f"The model `{name}` does not exist."
                return JSONResponse({"error": {"message": message, "code": 404}}, 404)
            if isinstance(prompts[0], int):
                prompts = [prompts]
            if "prompt_logprobs" in body:
                choices = [self._scored(name, i, prompt) for i, prompt in enumerate(prompts)]
                return JSONResponse({"model": name, "choices": choices})
            done = await self._watched(
                request, self.complete(name, prompts[0], _params(body, "max_tokens", "seed"))
            )
            echoed = [1, 2, 3] if self.faults.echo == "prompt" else prompts[0]
            choice = {
                "index": 0,
                "text": "",
                "finish_reason": done.finish_reason,
                "logprobs": {"token_logprobs": done.logprobs, "tokens": [], "top_logprobs": []},
                "token_ids": done.token_ids if body["return_token_ids"] else None,
                "prompt_token_ids": echoed if body["return_token_ids"] else None,
            }
            if self.faults.echo == "tokens":
                choice["token_ids"] = done.token_ids[:-1]
            answered = "another-version" if self.faults.echo == "model" else name
            usage = {"prompt_tokens_details": {"cached_tokens": done.cached_tokens}}
            return JSONResponse({"model": answered, "choices": [choice], "usage": usage})

        @app.get("/get_server_info")
        async def info() -> dict[str, Any]:
            return {"max_loras_per_batch": self.slots, "max_loaded_loras": None}

        @app.post("/load_lora_adapter")
        async def load_sglang(request: Request) -> dict[str, Any]:
            body = await request.json()
            await self.load(body["lora_name"], body["lora_path"])
            return {"success": True, "loaded_adapters": self.loaded}

        @app.post("/unload_lora_adapter")
        async def unload_sglang(request: Request) -> Response:
            name = (await request.json())["lora_name"]
            if name not in self.loaded:
                return JSONResponse({"success": False, "error_message": "not loaded"}, 400)
            await self.unload(name)
            return JSONResponse({"success": True})

        @app.post("/generate")
        async def generate(request: Request) -> Response:
            body = await request.json()
            self.requests.append(body)
            name, prompt = body.get("lora_path", BASE), body["input_ids"]
            if name not in (BASE, *self.loaded):
                return JSONResponse(
                    {"error": {"message": f"Got LoRA adapter that has never been loaded: {name}"}}, 400
                )
            sampling = body["sampling_params"]
            meta: dict[str, Any] = {
                "prompt_tokens": len(prompt),
                "finish_reason": {"type": "length", "length": 1},
            }
            if "rid" in body:
                meta["id"] = body["rid"]
            if body.get("logprob_start_len") == 0:
                scores = [None, *self.score(name, prompt)]
                meta["input_token_logprobs"] = [[s, t, None] for s, t in zip(scores, prompt, strict=True)]
                return JSONResponse({"text": "", "output_ids": [0], "meta_info": meta})
            params = _params(sampling, "max_new_tokens", "sampling_seed")
            done = await self._watched(request, self.complete(name, prompt, params))
            meta["finish_reason"] = {"type": done.finish_reason}
            pairs = zip(done.logprobs, done.token_ids, strict=True)
            meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
            return JSONResponse({"text": "", "output_ids": done.token_ids, "meta_info": meta})

        return app

    async def _watched(self, request: Request, work: Any) -> Completion:
        """Do the work, or cancel it when the client closes its connection, as the real servers do."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_left(request))
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not task.done():
            task.cancel()
        return await task

    def _scored(self, name: str, index: int, prompt: list[int]) -> dict[str, Any]:
        scores = self.score(name, prompt)
        places = [
            None,
            *({str(t): {"logprob": s, "rank": 1}} for s, t in zip(scores, prompt[1:], strict=True)),
        ]
        return {
            "index": index,
            "text": "",
            "finish_reason": "length",
            "prompt_logprobs": json.loads(json.dumps(places)),
        }


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _params(body: dict[str, Any], limit: str, seed: str) -> SamplingParams:
    # What the engine must say for itself: the real servers have defaults of the model for the rest.
    assert body["ignore_eos"] is True
    assert {"top_k", "min_p", "repetition_penalty"} <= body.keys()
    return SamplingParams(
        body[limit],
        temperature=body["temperature"],
        top_p=body["top_p"],
        stop_ids=frozenset(body.get("stop_token_ids", ())),
        seed=body.get(seed),
    )
