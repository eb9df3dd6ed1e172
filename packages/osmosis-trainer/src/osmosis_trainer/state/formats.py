"""What a saved state looks like over the versions of the trainer, and whether it belongs to the settings of a run.

The rule: a trainer reads the states of its own and of every earlier format, and refuses those of later ones. An option that
a state does not know must have its default, which does what the trainer did before it had the option.

| format | since | difference |
|---|---|---|
| 1 | 0.3.0 | `config_digest`: a hash of all settings that shape the numbers |
| 2 | 0.3.0 | `settings`: those settings themselves; `ahead_version` |
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from osmosis_trainer.errors import StateError
from osmosis_trainer.settings import RunSettings

FORMAT = 2

# The options of [advanced] that the hash of format 1 covers.
_ADVANCED_1 = (
    "seed",
    "max_steps",
    "validation_rows",
    "loss",
    "scale_rewards",
    "clip_low",
    "clip_high",
    "ratio_upper_cap",
    "ratio_cap",
    "kl_coef",
    "lora_rank",
    "lora_alpha",
    "weight_decay",
    "warmup_ratio",
    "max_grad_norm",
    "tokens_per_micro_batch",
    "refill_limit",
    "mask_truncated",
    "max_completion_tokens",
    "engine",
)

Sections = dict[str, dict[str, Any]]


class ForeignStateError(StateError):
    """A state that is whole but belongs to other settings or to a later trainer."""


def read_content(path: Path, settings: RunSettings) -> dict[str, Any]:
    """The fields of the run state in `path`, brought to the current format.

    Raises StateError for one that cannot be read, ForeignStateError for one of another run or a later format.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        written = content.pop("format")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{path} is not a run state: {error!r}") from error
    if written == 1:
        _from_1(path, content, settings)
    elif written != FORMAT:
        version = content.get("versions", {}).get("osmosis-trainer", "unknown")
        raise ForeignStateError(
            f"{path} has format {written} (osmosis-trainer {version}), this trainer reads formats 1 to {FORMAT}; "
            "continue the run with the version that wrote it, or a later one"
        )
    return content


def require_same(folder: Path, saved: Sections, settings: RunSettings) -> None:
    """Raise ForeignStateError naming the settings that differ from those the state was written with."""
    now, defaults = settings.shaping(), RunSettings().shaping()
    differences = [
        f"[{section}] {name} was {before!r} and is {value!r}"
        for section, values in now.items()
        for name, value in values.items()
        if (before := saved.get(section, {}).get(name, defaults[section][name])) != value
    ]
    gone = [
        f"[{section}] {name}"
        for section, values in saved.items()
        for name in values.keys() - now.get(section, {}).keys()
    ]
    differences += [f"{name} does not exist any more" for name in gone]
    if differences:
        raise ForeignStateError(
            f"{folder} belongs to a run with other settings ({'; '.join(differences)}); restore the settings or start a new run"
        )


def _from_1(path: Path, content: dict[str, Any], settings: RunSettings) -> None:
    now = settings.shaping()
    known = now | {"advanced": {name: now["advanced"][name] for name in _ADVANCED_1}}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    if content.pop("config_digest", None) != digest:
        raise ForeignStateError(
            f"{path.parent} belongs to a run with other settings; restore the settings or start a new run"
        )
    content["settings"] = known
