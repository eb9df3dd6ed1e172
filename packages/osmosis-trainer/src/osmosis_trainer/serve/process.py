"""The inference server as a process: `python -m osmosis_trainer serve`, its spec on standard input."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import uvicorn
from pydantic import ValidationError

from osmosis_ai.worker.lifeline import start_lifeline
from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.serve.app import create_app
from osmosis_trainer.serve.registry import EngineLoader, ModelRegistry
from osmosis_trainer.serve.spec import ServeSpec

logger = logging.getLogger(__name__)

SPEC_INVALID = 4
_IDLE_CHECKS_PER_PERIOD = 4

# transformers builds models under a context that is global to the process: two loads at once (a cancelled request's goes on
# in its thread) leave tensors without data.
_LOADING = threading.Lock()


def main() -> int:
    """Serve until told to stop (SIGTERM, SIGINT: status 0) or until standard input ends (status 70)."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        spec = read_spec(sys.stdin.buffer)
    except ConfigError as error:
        logger.error("%s", error)
        return SPEC_INVALID
    start_lifeline()
    # uvicorn shuts down on a signal and then raises it again: here it ends the process with status 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    asyncio.run(serve(spec))
    return 0


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def read_spec(stdin: BinaryIO) -> ServeSpec:
    """Read the one JSON line; raises ConfigError, which names wrong fields but never their values."""
    line = stdin.readline()
    if not line.strip():
        raise ConfigError("no spec on standard input: the inference server is started by the platform")
    try:
        return ServeSpec.model_validate_json(line)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'spec'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False, include_context=False)
        )
    raise ConfigError(f"the spec on standard input cannot be used: {wrong}")


async def serve(spec: ServeSpec) -> None:
    """Listen, then announce the models: the port answers before any of them is looked at."""
    registry = ModelRegistry(
        local_engines(spec.slots), max_requests=spec.max_requests, idle_unload_s=spec.idle_unload_s
    )
    await announce(registry, spec)
    idle_check_s = spec.idle_unload_s / _IDLE_CHECKS_PER_PERIOD if spec.idle_unload_s else None
    app = create_app(registry, api_key=spec.api_key, idle_check_s=idle_check_s)
    listener = socket.create_server((spec.host, spec.port))
    logger.info("listening on %s:%d", *listener.getsockname()[:2])
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, http="h11", timeout_graceful_shutdown=5
    )
    await uvicorn.Server(config).serve(sockets=[listener])


async def announce(registry: ModelRegistry, spec: ServeSpec) -> None:
    """Put the models of the spec into the registry; one that cannot be used is logged and left out."""
    for name, folder in spec.base_models.items():
        try:
            await registry.put_base(name, folder)
        except ChatRequestError as error:
            logger.error("base model %s is not served: %s", name, error)
    for adapter in spec.adapters:
        try:
            await registry.put_adapter(adapter.name, adapter.base, adapter.path)
        except ChatRequestError as error:
            logger.error("adapter %s is not served: %s", adapter.name, error)


def local_engines(slots: int) -> EngineLoader:
    """Loads base models into the local engine, for sampling only."""

    async def load(folder: Path) -> Engine:
        # Torch and transformers take seconds to import: the server answers before they are needed.
        def build() -> Engine:
            from osmosis_trainer.engines.local import LocalEngine, LocalSettings

            try:
                with _LOADING:
                    return LocalEngine.load(folder, LocalSettings(lora=None, slots=slots))
            except (OSError, ValueError, KeyError) as error:
                # What transformers raises for missing weights, unknown model types and broken files.
                raise ConfigError(f"{folder} holds no usable model: {error}") from error

        return await asyncio.to_thread(build)

    return load
