"""The journal: every finished attempt of the step in hand, on disk before anything is done with it.

A worker that is killed and started again reads the journal of the step it was in and runs only what is missing, so a
finished attempt is neither lost nor run again.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter, ValidationError

from osmosis_trainer.collect.attempt import Attempt, AttemptKey
from osmosis_trainer.errors import StateError

_ATTEMPT = TypeAdapter(Attempt)


class Journal:
    """Append-only file of one step. `append` returns once the attempt is on disk.

    An unfinished last line is what a kill in the middle of a write leaves: it was never acknowledged, so it is cut
    off at the next start. Any other line that cannot be read raises StateError.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / f"step-{step}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self.finished = self._read(whole)
        # Unbuffered: after a failed write nothing is left to be written later.
        self._file = self.path.open("ab", buffering=0)
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        _sync_folder(folder)

    def append(self, attempt: Attempt) -> None:
        """Write and fsync one attempt; a key that is already there raises ValueError.

        When the write fails the file is as it was before, and the attempt may be appended again.
        """
        if attempt.key in self.finished:
            raise ValueError(f"{self.path}: attempt {attempt.key} is already finished")
        end = os.fstat(self._file.fileno()).st_size
        try:
            left = memoryview(_ATTEMPT.dump_json(attempt) + b"\n")
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise
        self.finished[attempt.key] = attempt

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _read(self, content: bytes) -> dict[AttemptKey, Attempt]:
        found: dict[AttemptKey, Attempt] = {}
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            try:
                attempt = _ATTEMPT.validate_json(line)
            except ValidationError as error:
                raise StateError(
                    f"{self.path}, line {number}: not a finished attempt ({error.error_count()} errors); "
                    "the disk or another program changed the journal, restore it from a backup or start a new run"
                ) from error
            found[attempt.key] = attempt
        return found


def journal_steps(folder: Path) -> list[int]:
    """Steps that have a journal, ascending."""
    return sorted(int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.jsonl"))


def drop_journals(folder: Path, before: int) -> None:
    """Delete the journals of steps below `before`; their results are part of a saved state."""
    for step in journal_steps(folder):
        if step < before:
            (folder / f"step-{step}.jsonl").unlink()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
