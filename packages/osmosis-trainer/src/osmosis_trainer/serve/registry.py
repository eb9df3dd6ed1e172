"""The models of the server: base models loaded at their first use, adapters over them, unloaded when idle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from osmosis_trainer.chat.codec import ChatCodec
from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.errors import TrainerError

logger = logging.getLogger(__name__)

EngineLoader = Callable[[Path], Awaitable[Engine]]
"""Makes an engine that samples the base model in a folder."""


def model_not_found(name: str) -> ChatRequestError:
    """The refusal of a model name nobody serves."""
    return ChatRequestError(
        f"the model {name!r} does not exist; GET /v1/models lists what is served",
        code="model_not_found",
        param="model",
        status=404,
    )


@dataclass(slots=True)
class _Adapter:
    """`engine_name` is new for every folder: a name is never loaded twice, so no cache can hold the old weights."""

    name: str
    base: str
    path: Path
    engine_name: str
    loaded: bool = False


@dataclass(slots=True)
class _Base:
    name: str
    folder: Path
    created: int
    engine: Engine | None = None
    codec: ChatCodec | None = None
    open_requests: int = 0
    last_used: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model for the time of one request; `adapter` None is the base model itself."""

    engine: Engine
    codec: ChatCodec
    adapter: str | None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A name that can be asked for; `created` in Unix seconds."""

    id: str
    base: str
    adapter: str | None
    created: int
    loaded: bool


class ModelRegistry:
    """Names, folders and engines. All methods run on one event loop."""

    def __init__(
        self, load_engine: EngineLoader, *, max_requests: int, idle_unload_s: float | None = None
    ) -> None:
        self._load_engine = load_engine
        self._max_requests = max_requests
        self._idle_unload_s = idle_unload_s
        self._bases: dict[str, _Base] = {}
        self._adapters: dict[str, _Adapter] = {}
        self._generation = 0

    def entries(self) -> list[ModelEntry]:
        """Every model that can be asked for: base models, then adapters as `<base>:<adapter>`."""
        found = [
            ModelEntry(base.name, base.name, None, base.created, base.engine is not None)
            for base in self._bases.values()
        ]
        for adapter in self._adapters.values():
            created = self._bases[adapter.base].created
            found.append(
                ModelEntry(
                    f"{adapter.base}:{adapter.name}", adapter.base, adapter.name, created, adapter.loaded
                )
            )
        return found

    @property
    def open_requests(self) -> int:
        """Requests that run or wait."""
        return sum(base.open_requests for base in self._bases.values())

    async def put_base(self, name: str, folder: Path) -> None:
        """Serve the model in `folder` as `name`; a known name with another folder is unloaded first."""
        if not (folder / "config.json").is_file():
            raise ChatRequestError(f"{folder} is no model folder: config.json is missing", param="path")
        known = self._bases.get(name)
        if known is not None and known.folder == folder:
            return
        if known is not None:
            await self._unload(known)
            known.folder = folder
            return
        self._bases[name] = _Base(name, folder, int(time.time()))

    async def put_adapter(self, name: str, base_name: str, path: Path) -> None:
        """Serve the PEFT adapter in `path` as `<base_name>:<name>`; an adapter of that name is replaced.

        When the base model is in memory the adapter is loaded at once, so that a bad folder is found here.
        """
        base = self._bases.get(base_name)
        if base is None:
            raise model_not_found(base_name)
        if not (path / "adapter_config.json").is_file():
            raise ChatRequestError(
                f"{path} is no adapter folder: adapter_config.json is missing", param="path"
            )
        known = self._adapters.get(name)
        if known is not None and (known.base, known.path) == (base_name, path):
            return
        self._generation += 1
        adapter = _Adapter(name, base_name, path, f"{name}#{self._generation}")
        if base.engine is not None:
            try:
                async with base.lock:
                    await self._load_adapter(base, adapter)
            except TrainerError as error:
                raise ChatRequestError(
                    f"the adapter cannot be loaded: {error}", code="adapter_invalid", param="path"
                ) from error
        self._adapters[name] = adapter
        if known is not None:
            await self._drop(known)

    async def remove_adapter(self, name: str) -> bool:
        """Stop serving an adapter; False when nobody served it. Its running requests are finished."""
        adapter = self._adapters.pop(name, None)
        if adapter is not None:
            await self._drop(adapter)
        return adapter is not None

    @asynccontextmanager
    async def use(self, model: str) -> AsyncIterator[ServedModel]:
        """Hold a model for one request, loading it if need be.

        Raises ChatRequestError: 404 for an unknown name, 429 when too many requests are open, 503 when it cannot load.
        """
        base, adapter = self._find(model)
        if base.open_requests >= self._max_requests:
            raise ChatRequestError(
                f"{base.open_requests} requests for {base.name} are open, the most this server takes; try again later",
                code="rate_limit_exceeded",
                status=429,
            )
        base.open_requests += 1
        try:
            yield await self._ready(base, adapter)
        finally:
            base.open_requests -= 1
            base.last_used = time.monotonic()

    async def unload_idle(self) -> list[str]:
        """Take base models out of memory that nobody asked for `idle_unload_s`; returns their names."""
        if self._idle_unload_s is None:
            return []
        limit = time.monotonic() - self._idle_unload_s
        idle = [b for b in self._bases.values() if b.engine and not b.open_requests and b.last_used <= limit]
        for base in idle:
            await self._unload(base)
        return [base.name for base in idle]

    async def close(self) -> None:
        """Unload everything."""
        for base in self._bases.values():
            await self._unload(base)

    def _find(self, model: str) -> tuple[_Base, _Adapter | None]:
        if model in self._bases:
            return self._bases[model], None
        base_name, _, name = model.rpartition(":")
        adapter = self._adapters.get(name)
        if adapter is None or adapter.base != base_name:
            raise model_not_found(model)
        return self._bases[base_name], adapter

    async def _ready(self, base: _Base, adapter: _Adapter | None) -> ServedModel:
        if base.engine is None or (adapter is not None and not adapter.loaded):
            async with base.lock:
                try:
                    await self._load(base)
                    if adapter is not None and not adapter.loaded:
                        await self._load_adapter(base, adapter)
                except TrainerError as error:
                    raise ChatRequestError(
                        f"the model cannot be loaded: {error}", code="model_unavailable", status=503
                    ) from error
        assert base.engine is not None
        assert base.codec is not None
        return ServedModel(base.engine, base.codec, adapter.engine_name if adapter else None)

    async def _load(self, base: _Base) -> None:
        if base.engine is not None:
            return
        started = time.monotonic()
        engine = await self._load_engine(base.folder)
        try:
            base.codec = ChatCodec(engine.tokenizer)
        except TrainerError:
            await engine.close()
            raise
        base.engine, base.last_used = engine, time.monotonic()
        logger.info("loaded %s in %.1f s", base.name, time.monotonic() - started)

    async def _load_adapter(self, base: _Base, adapter: _Adapter) -> None:
        assert base.engine is not None
        await base.engine.load_adapter(adapter.engine_name, adapter.path)
        adapter.loaded = True
        logger.info("loaded adapter %s over %s", adapter.name, base.name)

    async def _drop(self, adapter: _Adapter) -> None:
        base = self._bases[adapter.base]
        async with base.lock:
            if adapter.loaded and base.engine is not None:
                await base.engine.unload_adapter(adapter.engine_name)
            adapter.loaded = False

    async def _unload(self, base: _Base) -> None:
        async with base.lock:
            if base.engine is None:
                return
            engine, base.engine, base.codec = base.engine, None, None
            for adapter in self._adapters.values():
                if adapter.base == base.name:
                    adapter.loaded = False
            await engine.close()
        logger.info("unloaded %s", base.name)
