"""Running servers: in this process, over a scripted or a real engine."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

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


@pytest.fixture
async def real(model_folders: Path, tmp_path: Path) -> AsyncIterator[ModelRegistry]:
    """A registry over the local engine that serves `acme/base`."""
    shutil.copytree(model_folders / "base", tmp_path / "base")
    registry = ModelRegistry(local_engines(4), max_requests=16, idle_unload_s=60.0)
    await registry.put_base("acme/base", tmp_path / "base")
    yield registry
    await registry.close()
