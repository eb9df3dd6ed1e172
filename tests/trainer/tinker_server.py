"""A server of the Tinker API over the local engine's parts: the wire format of the published client, and faults on demand.

Requests are checked strictly. Sampling runs in an engine of its own, from saved weights only, as on a real server.
Checkpoints are files; everything else is lost when the server restarts.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import shutil
import socket
import tarfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoModelForCausalLM

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.protocol import SamplingParams, TrainingRow
from osmosis_trainer.learner import lora, saving
from osmosis_trainer.learner.logprobs import token_logprobs
from osmosis_trainer.learner.packs import collate, make_packs
from osmosis_trainer.learner.step import Learner

KEY = "tml-test-key"
LONG_POLL_S = 2.0


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Chunk(Strict):
    type: Literal["encoded_text"] = "encoded_text"
    tokens: list[int]


class ModelInput(Strict):
    chunks: list[Chunk]

    @property
    def tokens(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.tokens]


class Tensor(Strict):
    data: list[int] | list[float]
    dtype: Literal["int64", "float32"]
    shape: list[int] | None = None


class Datum(Strict):
    model_input: ModelInput
    loss_fn_inputs: dict[str, Tensor]


class PassInput(Strict):
    data: list[Datum]
    loss_fn: Literal["cross_entropy", "importance_sampling"]
    loss_fn_config: dict[str, float] | None = None


class OfModel(Strict):
    model_id: str
    seq_id: int | None = None


class ForwardRequest(OfModel):
    forward_input: PassInput


class ForwardBackwardRequest(OfModel):
    forward_backward_input: PassInput


class AdamParams(Strict):
    learning_rate: float = Field(1e-4, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-12, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    grad_clip_norm: float = Field(0.0, ge=0)


class OptimStepRequest(OfModel):
    adam_params: AdamParams
    type: Literal["optim_step"] = "optim_step"


class SaveRequest(OfModel):
    path: str | None = Field(None, pattern=r"^[a-zA-Z0-9_-]+$")
    sampling_session_seq_id: int | None = None
    ttl_seconds: int | None = None
    type: Literal["save_weights", "save_weights_for_sampler"] | None = None


class LoadRequest(OfModel):
    path: str
    optimizer: bool
    type: Literal["load_weights"] = "load_weights"


class LoraConfig(Strict):
    rank: int = Field(ge=1)
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class CreateModelRequest(Strict):
    session_id: str
    model_seq_id: int
    base_model: str
    user_metadata: dict[str, Any] | None = None
    lora_config: LoraConfig
    type: Literal["create_model"] = "create_model"


class CreateSessionRequest(Strict):
    tags: list[str]
    user_metadata: dict[str, Any] | None = None
    sdk_version: str
    type: Literal["create_session"] = "create_session"


class SamplingFields(Strict):
    max_tokens: int = Field(ge=1)
    seed: int | None = Field(None, ge=0, lt=2**31)
    stop: list[int] | None = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


class SampleRequest(Strict):
    num_samples: int = 1
    prompt: ModelInput
    sampling_params: SamplingFields
    base_model: str | None = None
    model_path: str | None = None
    sampling_session_id: str | None = None
    seq_id: int | None = None
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = 0
    type: Literal["sample"] = "sample"


class NotLoadedError(Exception):
    """A version is sampled whose model is not in memory."""


@dataclass
class Trained:
    """A model in training."""

    learner: Learner
    lora: LoraSettings


@dataclass
class Memory:
    """What a restart loses."""

    sessions: set[str] = field(default_factory=set)
    samplers: dict[str, str | None] = field(default_factory=dict)
    models: dict[str, Trained] = field(default_factory=dict)
    turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    rows: Counter[str] = field(default_factory=Counter)
    positions: Counter[str] = field(default_factory=Counter)
    work: dict[str, asyncio.Task[Any]] = field(default_factory=dict)


class TinkerServer:
    """`faults[path]` holds what happens to the next requests of a path, one each:

    a status (answered instead of working), "after" (works, then answers 500), "cut" (works, then breaks the connection)
    or "try_again". `stale`: weights saved for sampling are those of the time before. `reduction` and `clips` are the
    server's conventions, `max_models` its places.
    """

    def __init__(self, base: Path, folder: Path, *, name: str = "tiny/base") -> None:
        self.base, self.folder, self.name = base, folder, name
        self.faults: dict[str, list[Any]] = defaultdict(list)
        self.calls: Counter[str] = Counter()
        self.reduction = "sum"
        self.clips = True
        self.stale = False
        self.max_models = 4
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.slots = 32
        self.context: int | None = None
        self.keys_seen_elsewhere: list[str | None] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._memory = Memory()
        self._server: uvicorn.Server | None = None
        self._sampler: LocalEngine | None = None
        self._loading = asyncio.Lock()
        self._base = AutoModelForCausalLM.from_pretrained(base).eval().requires_grad_(False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def models(self) -> dict[str, Trained]:
        return self._memory.models

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        config = uvicorn.Config(
            Faulty(self, self._app()), port=self.port, log_level="critical", ws="none", lifespan="off"
        )
        self._server = Unsignalled(config)
        self._serving = asyncio.create_task(self._server.serve())
        async with asyncio.timeout(60):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """As if killed: nothing in memory survives."""
        assert self._server is not None
        await self._forget()
        self._server.should_exit = self._server.force_exit = True
        await self._serving
        await self._forget()  # what was asked between the two
        if self._sampler is not None:
            await self._sampler.close()
            self._sampler = None

    async def _forget(self) -> None:
        memory, self._memory = self._memory, Memory()
        for task in memory.work.values():
            task.cancel()
        await asyncio.gather(*memory.work.values(), return_exceptions=True)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    # -- work --------------------------------------------------------------------------------------------------------

    def _begin(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        request_id = uuid4().hex

        async def guarded() -> dict[str, Any]:
            try:
                return await work()
            except HTTPException as error:
                return {"error": str(error.detail), "category": "user"}
            except NotLoadedError:
                raise
            except Exception as error:
                traceback.print_exc()
                return {"error": repr(error), "category": "server"}

        self._memory.work[request_id] = asyncio.create_task(guarded())
        return {"request_id": request_id, "future_id": request_id, "status": "pending"}

    def _in_turn(self, model_id: str, verb: Callable[[Trained], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Requests of one model are done one after the other, in the order of their arrival."""
        if model_id not in self._memory.models:
            raise HTTPException(404, f"Model {model_id} not loaded")
        memory = self._memory

        async def work() -> dict[str, Any]:
            async with memory.turns[model_id]:
                return await verb(memory.models[model_id])

        return self._begin(work)

    async def _create(self, request: CreateModelRequest) -> dict[str, Any]:
        if request.base_model != self.name:
            raise HTTPException(400, f"no model {request.base_model}")
        if len(self.models) >= self.max_models:
            raise HTTPException(400, "Maximum number of LoRA adapters reached")
        wanted = request.lora_config
        settings = LoraSettings(wanted.rank, 32.0, wanted.seed or 0)
        model = lora.attach(copy.deepcopy(self._base), settings)
        model_id = f"model_{uuid4().hex[:8]}"
        self.models[model_id] = Trained(Learner(model, 0), settings)
        return {"model_id": model_id, "type": "create_model"}

    async def _unload(self, model_id: str) -> dict[str, Any]:
        self.models.pop(model_id, None)
        return {"model_id": model_id, "type": "unload_model"}

    def _pass(self, engine: Trained, given: PassInput, *, backward: bool) -> dict[str, Any]:
        learner: Any = engine.learner
        outputs = []
        for datum in given.data:
            inputs = datum.loss_fn_inputs
            targets = inputs["target_tokens"].data
            tokens = [datum.model_input.tokens[0], *targets]
            if datum.model_input.tokens[1:] != targets[:-1]:
                raise HTTPException(400, "target_tokens are not the next tokens")
            row = TrainingRow(tokens, [0] + [1] * len(targets), [0.0] * len(tokens), 0.0, 0, "")
            batch = collate(make_packs([row], "padded"), 0, learner._device)
            with torch.set_grad_enabled(backward):
                new, _ = token_logprobs(learner.base, batch, 1.0)
                losses = _losses(
                    given.loss_fn, new, {name: torch.tensor(t.data) for name, t in inputs.items()}
                )
                if backward:
                    share = 1.0 / len(targets) if "row means" in self.reduction else 1.0
                    (losses.sum() * share).backward()
            outputs.append({"logprobs": _tensor(new), "elementwise_loss": _tensor(losses)})
        total = sum(sum(each["elementwise_loss"]["data"]) for each in outputs)
        return {
            "loss_fn_output_type": "TorchLossReturn",
            "loss_fn_outputs": outputs,
            "metrics": {"loss:sum": total},
        }

    async def _step(self, model_id: str, engine: Trained, adam: AdamParams) -> dict[str, Any]:
        learner: Any = engine.learner
        count = self._memory.rows.pop(model_id, 0)
        if not count:
            return {"metrics": None}
        parameters = learner.parameters
        positions = self._memory.positions.pop(model_id)
        if self.reduction.startswith("mean"):
            for parameter in parameters.values():
                parameter.grad /= positions if "tokens" in self.reduction else count
        self.gradients.append({name: p.grad.clone() for name, p in parameters.items()})
        limit = adam.grad_clip_norm if self.clips and adam.grad_clip_norm else float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), limit))
        for group in learner.optimizer.param_groups:
            group.update(
                lr=adam.learning_rate,
                betas=(adam.beta1, adam.beta2),
                eps=adam.eps,
                weight_decay=adam.weight_decay,
            )
        learner.optimizer.step()
        learner.drop_gradient()
        return {"metrics": {"optim/grad_norm": norm} if self.clips else None}

    async def _save(
        self, model_id: str, engine: Trained, request: SaveRequest, *, sampling: bool
    ) -> dict[str, Any]:
        learner: Any = engine.learner
        name = request.path or f"ss{request.sampling_session_seq_id}-seq{request.seq_id}"
        kind = "sampler_weights" if sampling else "weights"
        folder = self.folder / model_id / kind / name
        if folder.exists():
            raise HTTPException(409, f"checkpoint {name} already exists")
        path = f"tinker://{model_id}/{kind}/{name}"
        if not sampling:
            await asyncio.to_thread(saving.save, learner, folder, {})
            return {"path": path, "type": "save_weights"}
        earlier = sorted(folder.parent.glob("*"), key=lambda p: p.stat().st_mtime_ns)
        if self.stale and earlier:
            shutil.copytree(earlier[-1], folder)
        else:
            lora.export(learner.model, folder)
        if request.path is not None:
            return {"path": path, "type": "save_weights_for_sampler"}
        sampler = f"sampler_{uuid4().hex[:8]}"
        self._memory.samplers[sampler] = path
        return {"path": None, "sampling_session_id": sampler, "type": "save_weights_for_sampler"}

    async def _load(self, engine: Trained, path: str) -> dict[str, Any]:
        folder = self._place(path)
        await asyncio.to_thread(saving.load, engine.learner, folder, engine.lora)
        return {"path": path, "type": "load_weights"}

    def _place(self, path: str) -> Path:
        folder = self.folder / path.removeprefix("tinker://")
        if not folder.is_dir():
            raise HTTPException(404, f"{path} does not exist")
        return folder

    async def _sample(self, request: SampleRequest) -> dict[str, Any]:
        path = request.model_path
        if request.sampling_session_id is not None:
            path = self._memory.samplers[request.sampling_session_id]
        if path is not None and path.removeprefix("tinker://").partition("/")[0] not in self.models:
            raise NotLoadedError(f"Model of {path} not loaded")
        sampler = await self._sampler_with(path)
        given, prompt = request.sampling_params, request.prompt.tokens
        sequences = []
        for n in range(request.num_samples):
            params = SamplingParams(
                given.max_tokens,
                given.temperature,
                given.top_p,
                frozenset(given.stop or ()),
                None if given.seed is None else given.seed + n,
            )
            done = await sampler.sample(prompt, params, adapter=path)
            sequences.append(
                {"tokens": done.token_ids, "logprobs": done.logprobs, "stop_reason": done.finish_reason}
            )
        answer: dict[str, Any] = {"sequences": sequences, "type": "sample"}
        if request.prompt_logprobs:
            answer["prompt_logprobs"] = [None, *self._base_logprobs(prompt)]
        return answer

    async def _sampler_with(self, path: str | None) -> LocalEngine:
        async with self._loading:
            if self._sampler is None:
                settings = LocalSettings(threads=1, slots=self.slots, device="cpu")
                self._sampler = await asyncio.to_thread(LocalEngine.load, self.base, settings)
            if path is not None and path not in self._sampler._adapters:
                await self._sampler.load_adapter(path, self._place(path))
            return self._sampler

    def _base_logprobs(self, tokens: list[int]) -> list[float]:
        with torch.no_grad():
            logits = self._base(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
        return logits.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()

    async def _retrieve(self, request_id: str) -> Any:
        task = self._memory.work.get(request_id)
        if task is None:
            raise HTTPException(404, "Future not found")
        done, _ = await asyncio.wait({task}, timeout=LONG_POLL_S)
        if not done:
            return {"type": "try_again", "request_id": request_id, "queue_state": "active"}
        try:
            return task.result()
        except NotLoadedError as error:  # some servers answer work that failed like this
            raise HTTPException(400, str(error)) from error

    # -- routes ------------------------------------------------------------------------------------------------------

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/api/v1/healthz")
        async def healthz() -> dict[str, Any]:
            return {"status": "ok"}

        @app.get("/api/v1/get_server_capabilities")
        async def capabilities() -> dict[str, Any]:
            limit = {} if self.context is None else {"max_context_length": self.context}
            return {"supported_models": [{"model_name": "other/model"}, {"model_name": self.name, **limit}]}

        @app.post("/api/v1/create_session")
        async def create_session(request: CreateSessionRequest) -> dict[str, Any]:
            session = f"session_{uuid4().hex[:8]}"
            self._memory.sessions.add(session)
            return {"session_id": session, "type": "create_session"}

        @app.post("/api/v1/session_heartbeat")
        async def heartbeat(body: dict[str, Any]) -> dict[str, Any]:
            if body["session_id"] not in self._memory.sessions:
                raise HTTPException(404, "Session not found")
            return {"type": "session_heartbeat"}

        @app.post("/api/v1/telemetry")
        async def telemetry(request: Request) -> dict[str, Any]:
            return {"status": "accepted"}

        @app.post("/api/v1/create_sampling_session")
        async def create_sampling_session(body: dict[str, Any]) -> dict[str, Any]:
            sampler = f"sampler_{uuid4().hex[:8]}"
            self._memory.samplers[sampler] = body.get("model_path")
            return {"sampling_session_id": sampler, "type": "create_sampling_session"}

        @app.post("/api/v1/create_model")
        async def create_model(request: CreateModelRequest) -> dict[str, Any]:
            if request.session_id not in self._memory.sessions:
                raise HTTPException(404, "Session not found")
            return self._begin(lambda: self._create(request))

        @app.post("/api/v1/get_info")
        async def get_info(body: dict[str, Any]) -> dict[str, Any]:
            data = {"arch": "qwen3", "model_name": self.name, "tokenizer_id": str(self.base)}
            return {"type": "get_info", "model_id": body["model_id"], "model_data": data, "is_lora": True}

        @app.post("/api/v1/unload_model")
        async def unload_model(body: dict[str, Any]) -> dict[str, Any]:
            return self._begin(lambda: self._unload(body["model_id"]))

        @app.post("/api/v1/forward")
        async def forward(request: ForwardRequest) -> dict[str, Any]:
            async def verb(engine: Trained) -> dict[str, Any]:
                return self._pass(engine, request.forward_input, backward=False)

            return self._in_turn(request.model_id, verb)

        @app.post("/api/v1/forward_backward")
        async def forward_backward(request: ForwardBackwardRequest) -> dict[str, Any]:
            given = request.forward_backward_input

            async def verb(engine: Trained) -> dict[str, Any]:
                self._memory.rows[request.model_id] += len(given.data)
                self._memory.positions[request.model_id] += sum(len(d.model_input.tokens) for d in given.data)
                return self._pass(engine, given, backward=True)

            return self._in_turn(request.model_id, verb)

        @app.post("/api/v1/optim_step")
        async def optim_step(request: OptimStepRequest) -> dict[str, Any]:
            return self._in_turn(
                request.model_id, lambda engine: self._step(request.model_id, engine, request.adam_params)
            )

        @app.post("/api/v1/save_weights")
        async def save_weights(request: SaveRequest) -> dict[str, Any]:
            return self._in_turn(
                request.model_id,
                lambda engine: self._save(request.model_id, engine, request, sampling=False),
            )

        @app.post("/api/v1/save_weights_for_sampler")
        async def save_weights_for_sampler(request: SaveRequest) -> dict[str, Any]:
            return self._in_turn(
                request.model_id,
                lambda engine: self._save(request.model_id, engine, request, sampling=True),
            )

        @app.post("/api/v1/load_weights")
        async def load_weights(request: LoadRequest) -> dict[str, Any]:
            self._place(request.path)
            return self._in_turn(request.model_id, lambda engine: self._load(engine, request.path))

        @app.post("/api/v1/asample")
        async def asample(request: SampleRequest) -> dict[str, Any]:
            return self._begin(lambda: self._sample(request))

        @app.post("/api/v1/retrieve_future")
        async def retrieve_future(body: dict[str, Any]) -> Any:
            return await self._retrieve(body["request_id"])

        place = "/api/v1/training_runs/{run}/checkpoints/{kind}/{name}"

        @app.get(place + "/archive")
        async def archive(run: str, kind: str, name: str) -> Response:
            self._place(f"tinker://{run}/{kind}/{name}")
            # Another name of the same machine: an address elsewhere, as signed addresses of a storage service are.
            return RedirectResponse(
                f"http://localhost:{self.port}/signed/{run}/{kind}/{name}.tar.gz", status_code=302
            )

        @app.get("/signed/{run}/{kind}/{name}.tar.gz")
        async def download(run: str, kind: str, name: str, request: Request) -> Response:
            self.keys_seen_elsewhere.append(request.headers.get("X-API-Key"))
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
                tar.add(self._place(f"tinker://{run}/{kind}/{name}"), arcname=name)
            return Response(buffer.getvalue(), media_type="application/gzip")

        @app.delete(place)
        async def delete(run: str, kind: str, name: str) -> dict[str, Any]:
            shutil.rmtree(self._place(f"tinker://{run}/{kind}/{name}"))
            return {}

        return app


class Unsignalled(uvicorn.Server):
    """Leaves the signal handlers of the process, which belong to the worker under test, alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Faulty:
    """Checks the key, counts calls and makes the faults happen."""

    def __init__(self, server: TinkerServer, app: FastAPI) -> None:
        self._server, self._app = server, app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix("/api/v1/")
        self._server.calls[path] += 1
        headers = dict(scope["headers"])
        if scope["path"].startswith("/api/") and headers.get(b"x-api-key", b"").decode() != KEY:
            await JSONResponse({"detail": "invalid API key"}, 401)(scope, receive, send)
            return
        faults = self._server.faults[path]
        fault = faults.pop(0) if faults else None
        if callable(fault):
            fault = await fault()
        if isinstance(fault, int):
            await JSONResponse({"detail": "out of order"}, fault, {"Retry-After": "0"})(scope, receive, send)
        elif fault == "try_again":
            body = {"type": "try_again", "request_id": "x", "queue_state": "paused_capacity"}
            await JSONResponse(body)(scope, receive, send)
        elif fault in ("after", "cut"):
            await self._app(scope, receive, _nowhere)
            await self._break(fault, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _break(self, fault: str, scope: Any, receive: Any, send: Any) -> None:
        if fault == "after":
            await JSONResponse({"detail": "lost the answer"}, 500)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": json.dumps({}).encode(), "more_body": False})


async def _nowhere(message: Any) -> None:
    return


def _losses(name: str, new: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    if name == "cross_entropy":
        return -new * inputs["weights"]
    return -(new - inputs["logprobs"]).exp() * inputs["advantages"]


def _tensor(values: torch.Tensor) -> dict[str, Any]:
    return {"data": values.detach().tolist(), "dtype": "float32", "shape": list(values.shape)}
