"""Which models on the server this run holds, on disk: a worker that was killed leaves them there, the next one removes them."""

from __future__ import annotations

import json
from pathlib import Path

from osmosis_trainer.errors import StateError


class Lease:
    """The ids of the run's models in one small file; without a file nothing is remembered."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._held = self._read()

    @property
    def held(self) -> list[str]:
        """Models that were made and not given back."""
        return list(self._held)

    def add(self, model_id: str) -> None:
        """A model was made."""
        self._write([*self._held, model_id])

    def drop(self, model_id: str) -> None:
        """A model was given back, or the server has lost it."""
        self._write([held for held in self._held if held != model_id])

    def _read(self) -> list[str]:
        if self._file is None or not self._file.exists():
            return []
        try:
            return [str(each) for each in json.loads(self._file.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError) as error:
            raise StateError(f"{self._file} cannot be read ({error}); remove it") from error

    def _write(self, held: list[str]) -> None:
        self._held = held
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(held), encoding="utf-8")
        draft.replace(self._file)
