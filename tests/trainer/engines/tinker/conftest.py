"""The tinker engine against a server of ours over the two-layer model of the engines' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from osmosis_trainer.engines.tinker import TinkerEngine, TinkerSettings


@pytest.fixture
async def server(tinker_server: ModuleType, base_folder: Path, tmp_path: Path) -> AsyncIterator[Any]:
    running = tinker_server.TinkerServer(base_folder, tmp_path / "server")
    await running.start()
    yield running
    await running.stop()


OpenTinker = Callable[..., Awaitable[TinkerEngine]]


@pytest.fixture
async def open_tinker(server: Any, tinker_server: ModuleType, base_folder: Path) -> AsyncIterator[OpenTinker]:
    """Opens engines on the server; keywords change settings."""
    engines: list[TinkerEngine] = []

    async def open_it(log: Callable[[str], None] = lambda text: None, **changes: Any) -> TinkerEngine:
        settings: dict[str, Any] = {
            "url": server.url,
            "api_key": tinker_server.KEY,
            "base_model": server.name,
            "model_folder": base_folder,
            "rank": 4,
            "seed": 0,
            "patience_s": 60.0,
        }
        engines.append(await TinkerEngine.open(TinkerSettings(**settings | changes), log))
        return engines[-1]

    yield open_it
    for engine in engines:
        await engine.close()
