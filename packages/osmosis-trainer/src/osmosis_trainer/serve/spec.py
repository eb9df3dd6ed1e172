"""What the inference server is told on its standard input: one JSON line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class AdapterSpec(BaseModel):
    """A deployed adapter: `path` is a folder in PEFT format, `base` the name of its base model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    path: Path


class ServeSpec(BaseModel):
    """Where to listen and what to serve.

    `idle_unload_s`: seconds without a request after which a base model leaves memory; None keeps it. `max_requests`:
    open requests per base model, the running ones included; more are answered with 429. `slots`: how many of them are
    sampled at once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)]
    api_key: Annotated[str, Field(min_length=1)]
    base_models: dict[str, Path] = {}
    adapters: tuple[AdapterSpec, ...] = ()
    idle_unload_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_requests: Annotated[int, Field(ge=1)] = 128
    slots: Annotated[int, Field(ge=1)] = 32
