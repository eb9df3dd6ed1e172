"""The split engine against servers of ours. Its learner runs in this process here; test_learners.py has real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.opening import EngineRequest
from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.engines.split.engine import SplitEngine
from osmosis_trainer.engines.split.opening import assemble, connect
from osmosis_trainer.learner import saving
from osmosis_trainer.settings import RunSettings

LORA = {"lora_rank": 4, "lora_alpha": 8}


class LearnerHere:
    """The verbs of `DurableLearner` over the learner of a local engine."""

    def __init__(self, base: Path, device: str = "cpu") -> None:
        self.device, self.rehearsed = device, list[int]()
        self.local = LocalEngine.load(base, LocalSettings(lora=LoraSettings(rank=4, alpha=8), threads=1))

    async def open(self) -> dict[str, Any]:
        return {"dtype": "float32", "device": self.device, "base_bytes": 0}

    async def rehearse(self, row_tokens: int) -> None:
        self.rehearsed.append(row_tokens)

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        return await self.local.forward_backward(rows, objective)

    async def optim_step(self, lr: float, max_grad_norm: float) -> dict[str, float]:
        return await self.local.optim_step(lr=lr, max_grad_norm=max_grad_norm)

    async def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        return await self.local.score(rows, temperature)

    async def export(self, folder: Path) -> None:
        await self.local.export_adapter(folder)

    async def save(self, folder: Path, extra: dict[str, Any]) -> None:
        saving.save(self.local._train(), folder, extra)

    async def load(self, folder: Path) -> dict[str, Any]:
        assert self.local.settings.lora is not None
        return saving.load(self.local._train(), folder, self.local.settings.lora)

    async def close(self) -> None:
        await self.local.close()


def engine_request(base: Path, work: Path, urls: str, log: Any = None, **changes: Any) -> EngineRequest:
    """A request for the split engine; `advanced=` and so on change settings, `secrets=` gives values."""
    secrets = changes.pop("secrets", {})
    sections: dict[str, Any] = {
        "training": {"max_prompt_length": 128, "max_response_length": 128},
        "sampling": {},
    }
    sections["advanced"] = {"engine": "split", "split_servers": urls, "split_wait_s": 30, **LORA}
    settings = RunSettings.from_config(
        {name: values | changes.get(name, {}) for name, values in sections.items()}
    )
    return EngineRequest(base, "tiny", settings, work, log or (lambda text: None), secrets)


StartServer = Callable[..., Awaitable[Any]]


@pytest.fixture
async def start_server(sampling_server: ModuleType, base_folder: Path) -> AsyncIterator[StartServer]:
    """Starts servers; keywords are fields of `SamplingServer`."""
    servers: list[Any] = []

    async def start(**fields: Any) -> Any:
        servers.append(sampling_server.SamplingServer(base_folder, **fields))
        await servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        await server.kill()


OpenSplit = Callable[..., Awaitable[SplitEngine]]


@pytest.fixture
async def open_split(base_folder: Path, tmp_path: Path) -> AsyncIterator[OpenSplit]:
    """Opens engines on servers; `advanced=` and so on change settings."""
    engines: list[SplitEngine] = []

    async def open_it(*servers: Any, **changes: Any) -> SplitEngine:
        learner: Any = LearnerHere(base_folder, changes.pop("device", "cpu"))
        urls = ", ".join(server.url for server in servers)
        request = engine_request(base_folder, tmp_path / "work", urls, **changes)
        engines.append(await assemble(request, learner, connect(request)))
        return engines[-1]

    yield open_it
    for engine in engines:
        await engine.close()
