"""The choice of engine: `[advanced] engine` names a room below this one, which is imported only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.errors import ConfigError

if TYPE_CHECKING:
    from osmosis_trainer.settings import RunSettings


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What an engine is opened with.

    `base_model` is the folder of the base model, `base_name` its name on the platform. `work_dir` is the run's private
    folder, which outlives restarts. `log` writes one line to the run log. `secrets` are values the engine may need,
    by name.
    """

    base_model: Path
    base_name: str
    settings: RunSettings
    work_dir: Path
    log: Callable[[str], None]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def secret(self, option: str) -> str | None:
        """The value of the secret that the `[advanced]` option names; None where it is not set.

        Raises ConfigError for a secret that the run does not have.
        """
        name = getattr(self.settings.advanced, option)
        if name is None:
            return None
        value = self.secrets.get(name)
        if not value:
            raise ConfigError(
                f"[advanced] {option} names the secret {name!r}, which the run does not have; list it in "
                "[secrets] required"
            )
        return value


# Each module has `async def open_engine(request: EngineRequest) -> Engine`; the text says what it needs beside the trainer.
_ENGINES = {
    "local": ("osmosis_trainer.engines.local.opening", ""),
    "split": ("osmosis_trainer.engines.split.opening", ""),
    "tinker": ("osmosis_trainer.engines.tinker.opening", ""),
}


async def open_engine(request: EngineRequest) -> Engine:
    """Open the engine of the configuration; takes as long as reading the weights.

    Raises ConfigError for an engine that is not installed and for a setting it cannot honour.
    """
    name = request.settings.advanced.engine
    module, needs = _ENGINES[name]
    try:
        room = import_module(module)
    except ModuleNotFoundError as error:
        hint = needs or "reinstall osmosis-trainer"
        raise ConfigError(
            f"the engine {name!r} cannot be used: the module {error.name!r} is missing; {hint}"
        ) from error
    engine: Engine = await room.open_engine(request)
    try:
        require_capabilities(engine, request.settings)
    except ConfigError:
        await engine.close()
        raise
    return engine


def require_capabilities(engine: Engine, settings: RunSettings) -> None:
    """Raise ConfigError, naming every setting that the engine does not declare to honour."""
    advanced, sampling = settings.advanced, settings.sampling
    wanted = {
        "train": (True, "training"),
        f"loss:{advanced.loss}": (True, f"[advanced] loss = {advanced.loss!r}"),
        "kl": (advanced.kl_coef > 0, "[advanced] kl_coef above 0"),
        "weight_decay": (advanced.weight_decay > 0, "[advanced] weight_decay above 0"),
        "temperature": (sampling.rollout_temperature != 1.0, "[sampling] rollout_temperature other than 1"),
        "top_p": (sampling.rollout_top_p < 1.0, "[sampling] rollout_top_p below 1"),
        "overlap": (
            advanced.max_staleness > 0,
            "[advanced] max_staleness above 0: it samples or learns, not both",
        ),
    }
    missing = [
        text for capability, (used, text) in wanted.items() if used and capability not in engine.capabilities
    ]
    if missing:
        raise ConfigError(f"the engine {engine.name!r} cannot honour {', '.join(missing)}")
