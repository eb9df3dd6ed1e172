"""Running servers: in this process over a scripted or a real engine, and small real models on disk."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.serve import ModelRegistry, create_app
from osmosis_trainer.serve.process import local_engines

API_KEY = "secret-key"

Listen = Callable[[ModelRegistry], Any]


@asynccontextmanager
async def listening(registry: ModelRegistry, **options: Any) -> AsyncIterator[str]:
    """Serve a registry on a free loopback port; yields `http://127.0.0.1:<port>`."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(registry, api_key=API_KEY, **options)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.fixture
def listen() -> Callable[..., Any]:
    """The context manager that serves a registry."""
    return listening


@pytest.fixture
async def serve_engine(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Serve one engine as the base model `base`; gives the server's address."""
    (tmp_path / "config.json").write_text("{}")
    contexts = []

    async def start(engine: Engine, **options: Any) -> str:
        async def load(_: Path) -> Engine:
            return engine

        registry = ModelRegistry(load, max_requests=options.get("max_requests", 8))
        await registry.put_base("base", tmp_path)
        context = listening(registry)
        contexts.append(context)
        return await context.__aenter__()

    yield start
    for context in contexts:
        await context.__aexit__(None, None, None)


def save_base(folder: Path, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
    """A two-layer Qwen3 with random weights, steep enough that greedy answers and adapters differ."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_adapter(base: Path, folder: Path, seed: int) -> None:
    """A LoRA adapter over the model in `base`, with weights that change its answers."""
    model = Qwen3ForCausalLM.from_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"]))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.5)
    adapted.save_pretrained(folder)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, small_model_tokenizer: PreTrainedTokenizerFast) -> Path:
    """A folder with `base` and `other` (base models), `lora-a` and `lora-b` (adapters of `base`)."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    save_base(root / "base", small_model_tokenizer, 1)
    save_base(root / "other", small_model_tokenizer, 2)
    save_adapter(root / "base", root / "lora-a", 3)
    save_adapter(root / "base", root / "lora-b", 4)
    return root


@pytest.fixture
async def real(models: Path, tmp_path: Path) -> AsyncIterator[ModelRegistry]:
    """A registry over the local engine that serves `acme/base`."""
    shutil.copytree(models / "base", tmp_path / "base")
    registry = ModelRegistry(local_engines(4), max_requests=16, idle_unload_s=60.0)
    await registry.put_base("acme/base", tmp_path / "base")
    yield registry
    await registry.close()
