"""Every knob of a training is honoured by the chosen engine or refused when the run is submitted, as the pages say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.config.schema import SAMPLING, TRAINING_ADVANCED, Key
from osmosis_ai.config.submission import Submission, validate_submission
from osmosis_trainer.engines.local import engine as local
from osmosis_trainer.engines.opening import require_capabilities
from osmosis_trainer.engines.split.engine import SplitEngine
from osmosis_trainer.engines.tinker.engine import TinkerEngine
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.settings import RunSettings

DOCS = Path(__file__).parents[3] / "docs"
KNOBS = {
    "advanced": [key for key in TRAINING_ADVANCED if key.name != "engine"],
    "sampling": list(SAMPLING),
}
# Beside the settings that belong to another engine.
REFUSED = {
    "local": set[str](),
    "split": set[str](),
    "tinker": {"lora_alpha", "torch_threads", "rollout_temperature", "rollout_top_p"},
}


class Local:
    name = "local"
    capabilities = local._SERVES | local._TRAINS


ENGINES: dict[str, Any] = {"local": Local, "split": SplitEngine, "tinker": TinkerEngine}


def others(key: Key) -> list[Any]:
    """Allowed values that are not the default."""
    if key.choices:
        return [choice for choice in key.choices if choice != key.default]
    if key.type == "bool":
        return [not key.default]
    if key.type == "str":
        return ["KEY" if key.name.endswith("_key") else "http://127.0.0.1:8001"]
    if key.type == "int":
        return [int(key.default or key.minimum or 0) + (1 if key.default != key.maximum else -1)]
    return [key.default * 0.5 if key.default else 0.25]


def refused_at_submit(config: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The problems that a submit of these sections is answered with."""
    experiment = {"rollout": "calc", "entrypoint": "main.py", "model_path": "Qwen/Qwen3", "dataset": "d"}
    body: dict[str, Any] = {f"{section}_config": values for section, values in config.items()}
    body |= {"experiment_config": experiment, "secrets": {"required": ["KEY"]}}
    found = validate_submission("training", body)
    return [] if isinstance(found, Submission) else found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_knob_is_honoured_or_refused_at_submit(engine: str) -> None:
    refused = set()
    for section, keys in KNOBS.items():
        for key in keys:
            for value in others(key):
                config: dict[str, dict[str, Any]] = {"advanced": {"engine": engine}}
                if key.name == "split_sharding" and engine == "split":
                    config["advanced"]["split_learners"] = 2
                config.setdefault(section, {})[key.name] = value
                problems = refused_at_submit(config)
                assert {problem["key"] for problem in problems} <= {f"{section}.{key.name}"}, problems
                refused |= {key.name for _ in problems}
                # The trainer knows every knob, and what it would refuse at the start was refused before.
                settings = RunSettings.from_config(config)
                try:
                    require_capabilities(ENGINES[engine], settings)
                except ConfigError:
                    assert problems, (key.name, value)
    foreign = {key.name for key in KNOBS["advanced"] if key.name.split("_")[0] in {*ENGINES} - {engine}}
    assert refused == REFUSED[engine] | foreign


def test_the_page_names_what_is_refused() -> None:
    page = (DOCS / "tinker-engine.md").read_text(encoding="utf-8")
    section = page.partition("## What is refused")[2].partition("\n## ")[0]
    assert [name for name in sorted(REFUSED["tinker"]) if f"`{name}`" not in section] == []
