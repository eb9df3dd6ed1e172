"""The folder of a local evaluation: what was asked, what is finished, and what came out.

========================================  ==========================================================================
``manifest.json``                         what was asked (schema 1); a run goes on only with the same inputs
``events.jsonl``                          one line per finished attempt, on disk before the attempt counts
``logs.txt``                              log of runner and rollout server; only the owner may read it
``server.json``                           the rollout server that runs now
``index.jsonl``, ``summary.jsonl``        one line per attempt, sorted by row and run
``progress.json``, ``metrics.json``       counts and results
``trajectories/row_R_run_K.json``         trajectory documents
``artifacts/row_R_run_K/``                files that attempts left behind
``rollout_trials/<rollout id>/``          the files where the rollout server wrote them
========================================  ==========================================================================
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import OsmosisError

SCHEMA_VERSION = 1

_IN_WORDS = {
    "source_digest": "the rollout's code",
    "selected_source_rows": "the rows",
    "selected_rows": "the rows",
    "dataset_sha256": "the dataset's content",
    "dataset_rows": "the dataset's content",
}


class RunFolderError(OsmosisError):
    """The folder of a local evaluation cannot be used as asked."""

    default_code = "CONFLICT"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder ``<root>/<name>``."""

    root: Path
    name: str

    @property
    def path(self) -> Path:
        """The folder itself."""
        return self.root / self.name

    @property
    def manifest_path(self) -> Path:
        return self.path / "manifest.json"

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def log_path(self) -> Path:
        return self.path / "logs.txt"

    @property
    def trials(self) -> Path:
        """Where the rollout server writes: the artifact root of the run."""
        return self.path / "rollout_trials"

    @property
    def state(self) -> Path:
        """What only the runner reads."""
        return self.path / ".state"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else runs this evaluation inside the block.

        Raises:
            RunFolderError: somebody does, or nothing can be written there.
        """
        locks = self.root / ".locks"
        try:
            locks.mkdir(parents=True, exist_ok=True)
            lock = (locks / f"{self.name}.lock").open("w")
        except OSError as error:
            raise RunFolderError(
                f"Evaluations cannot be written to {self.root}: {error.strerror}. Name another folder with --output.",
                details={"path": str(self.root)},
            ) from error
        with lock as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(
                    f"The evaluation {self.name!r} is running already, in another process. Wait for it, or give this one "
                    "another --name."
                ) from None
            yield

    def begin(self, inputs: Mapping[str, Any], provenance: Mapping[str, Any]) -> bool:
        """Make the folder, or take up an earlier try with the same inputs; whether it is a later try.

        Raises:
            RunFolderError: the earlier try had other inputs.
        """
        if not self.manifest_path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            manifest = {
                "schema_version": SCHEMA_VERSION,
                "local_run_id": uuid4().hex,
                "name": self.name,
                "created_at": now(),
                "inputs": dict(inputs),
                "provenance": {"sdk_version": PACKAGE_VERSION, **provenance},
            }
            write_json(self.manifest_path, manifest)
            return False
        earlier = self.manifest()["inputs"]
        different = {name for name in {*earlier, *inputs} if earlier.get(name) != inputs.get(name)}
        changed = sorted({_IN_WORDS.get(name, name) for name in different})
        if changed:
            raise RunFolderError(
                f"The evaluation {self.name!r} in {self.path} was begun with other inputs.\n"
                f"Changed: {', '.join(changed)}.\n"
                "Use --fresh to put it aside and begin again, or another --name.",
                details={"changed": changed, "path": str(self.path)},
            )
        return True

    def manifest(self) -> dict[str, Any]:
        """What was asked.

        Raises:
            RunFolderError: the file is no manifest of this schema.
        """
        try:
            found = json.loads(self.manifest_path.read_text(encoding="utf-8"))
            if found["schema_version"] != SCHEMA_VERSION or not isinstance(found["inputs"], dict):
                raise ValueError(f"schema_version is {found['schema_version']!r}, not {SCHEMA_VERSION}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{self.manifest_path} cannot be read: {error}. Use --fresh, or another --name.",
                details={"path": str(self.manifest_path)},
            ) from error
        return dict(found)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """One of the folder's JSON files; None when it is missing or damaged."""
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def archive(self) -> Path | None:
        """Put the folder aside under a name with the time; its new path, None when there was none."""
        if not self.path.exists():
            return None
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        aside = self.root / f"{self.name}.archive-{stamp}"
        self.path.rename(aside)
        return aside

    def attempts(self) -> list[dict[str, Any]]:
        """Finished attempts in the order they finished; a line that a crash cut off was never counted."""
        return list(_json_lines(self.events_path))

    def forget_failed(self) -> int:
        """Take failed attempts out, so that they run again; how many."""
        found = self.attempts()
        kept = [attempt for attempt in found if attempt["status"] != "failed"]
        ids = {attempt["rollout_id"] for attempt in kept}
        verdicts = self.state / "verdicts.jsonl"
        # The verdicts first: without one an attempt in the events still counts, the other way round it would come back.
        if verdicts.exists():
            left = [verdict for verdict in _json_lines(verdicts) if verdict.get("rollout_id") in ids]
            write_lines(verdicts, left)
        if self.events_path.exists():
            write_lines(self.events_path, kept)
        return len(found) - len(kept)

    def clean(self) -> None:
        """Remove what only a running evaluation needs."""
        shutil.rmtree(self.state / "blobs", ignore_errors=True)
        (self.path / "server.json").unlink(missing_ok=True)


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_json(path: Path, document: Any) -> None:
    """Replace a file at once: a reader sees the old or the new content."""
    _replace(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_lines(path: Path, documents: list[dict[str, Any]]) -> None:
    """Replace a JSON-lines file at once."""
    _replace(path, "".join(f"{json.dumps(document, allow_nan=False)}\n" for document in documents))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.new")
    with staging.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    staging.replace(path)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
