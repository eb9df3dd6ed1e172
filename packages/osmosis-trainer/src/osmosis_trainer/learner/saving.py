"""Exact training state on disk: adapter in PEFT format plus the optimizer, in one folder that appears at once."""

from __future__ import annotations

import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from osmosis_trainer.errors import StateError
from osmosis_trainer.learner.lora import LoraSettings, export, restore
from osmosis_trainer.learner.step import Learner

_OPTIMIZER = "optimizer.pt"
_STATE = "engine.json"
_FORMAT = 1


def save(learner: Learner, folder: Path, extra: dict[str, Any]) -> None:
    """Write everything an exact resume needs to `folder`, replacing what was there. `extra` must be JSON."""
    with atomic_folder(folder) as draft:
        export(learner.model, draft)
        content = io.BytesIO()
        torch.save(learner.optimizer.state_dict(), content)
        # Written by Python: torch's own writer hides what the system says when it fails.
        (draft / _OPTIMIZER).write_bytes(content.getbuffer())
        state = {"format": _FORMAT, "parameters": list(learner.parameters), **extra}
        (draft / _STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")


def load(learner: Learner, folder: Path, settings: LoraSettings) -> dict[str, Any]:
    """Restore what `save` wrote; returns its `extra`. Raises StateError on anything missing or foreign."""
    for name in (_STATE, _OPTIMIZER):
        if not (folder / name).is_file():
            raise StateError(f"{folder} is no complete training state: {name} is missing")
    state: dict[str, Any] = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    if state.pop("format", None) != _FORMAT:
        raise StateError(
            f"{folder / _STATE} has another format than {_FORMAT}; resume with the version that wrote it"
        )
    if state.pop("parameters") != list(learner.parameters):
        raise StateError(f"{folder} belongs to another model: its adapter has other parameters")
    restore(learner.model, folder, settings)
    learner.drop_gradient()
    learner.optimizer.load_state_dict(torch.load(folder / _OPTIMIZER, weights_only=True))
    return state


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A draft folder that becomes `folder` when the block ends without error: written, flushed to disk, renamed.

    A reader sees the old folder, the new one, or (for an instant while one replaces the other) none, never a mixture.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    draft.mkdir()
    try:
        yield draft
        for path in [*draft.rglob("*"), draft]:
            _flush(path)
        if folder.exists():
            old = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.old")
            folder.rename(old)
            draft.rename(folder)
            shutil.rmtree(old)
        else:
            draft.rename(folder)
        _flush(folder.parent)
    finally:
        if draft.exists():
            shutil.rmtree(draft)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
