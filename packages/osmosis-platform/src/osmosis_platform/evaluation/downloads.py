"""Files of an evaluation to download: a manifest of paths, and signed addresses for them.

What still grows (metrics, summary, logs) is written down as a blob when the manifest is made, and its token is the blob's
hash: the bytes served later are exactly those the manifest gave the size of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput, NotFound
from osmosis_platform.evaluation.results import metrics_file
from osmosis_platform.runs.models import LogLine, Run, RunArtifact, RunAttempt, RunExport
from osmosis_platform.runs.upsert import insert_missing
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.storage.models import Blob
from osmosis_platform.storage.store import StoredBlob

TYPES = ("metrics", "trajectories", "artifacts", "logs")
DEFAULT_TYPES = ("metrics", "trajectories")

_ROW_RANGE = re.compile(r"^(\d{1,1000})(?:-(\d{1,1000}))?$")
_TRAJECTORY = re.compile(r"^trajectories/row_(\d{1,10})_run_(\d{1,10})\.json$")
_ARTIFACT = re.compile(r"^artifacts/row_(\d{1,10})_run_(\d{1,10})/(.+)$")


@dataclass(frozen=True, slots=True)
class RunFile:
    """A downloadable file: where it goes, its exact size, and the blob that holds it."""

    path: str
    size: int
    sha256: str

    def entry(self) -> dict[str, Any]:
        """The file in a manifest."""
        return {"path": self.path, "size": self.size, "token": self.sha256}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Selected row indices as inclusive ranges; none at all selects every row."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> RowFilter:
        """From `3,7,10-20`; raises InvalidInput."""
        if not text:
            return cls()
        ranges = []
        for part in text.split(","):
            match = _ROW_RANGE.match(part.strip())
            if match is None:
                raise InvalidInput(
                    f"rows: {part!r} is neither a number nor a range such as 10-20.", field="rows"
                )
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise InvalidInput(f"rows: {part!r} ends before it begins.", field="rows")
            ranges.append((first, last))
        return cls(tuple(ranges))

    def __contains__(self, row: int) -> bool:
        return not self.ranges or any(first <= row <= last for first, last in self.ranges)


def parse_types(text: str | None) -> tuple[str, ...]:
    """From `metrics,logs`; raises InvalidInput for a type that does not exist."""
    chosen = tuple(
        dict.fromkeys(part.strip() for part in (text or ",".join(DEFAULT_TYPES)).split(",") if part.strip())
    )
    unknown = [name for name in chosen if name not in TYPES]
    if unknown or not chosen:
        raise InvalidInput(
            f"types: {', '.join(unknown) or 'nothing'} is not among {', '.join(TYPES)}.", field="types"
        )
    return chosen


def manifest(platform: Platform, run_id: str, types: tuple[str, ...], rows: RowFilter) -> dict[str, Any]:
    """Every file of the chosen types, in one answer."""
    with platform.database.read() as session:
        run = session.get_one(Run, run_id)
        snapshots = [(path, _store(platform, chunks)) for path, chunks in _snapshots(session, run, types)]
        stored = list(_stored_files(session, run, types, rows))
    files = [*_keep(platform, run_id, snapshots), *stored]
    return {
        "files": [file.entry() for file in files],
        "totals": {"files": len(files), "bytes": sum(file.size for file in files)},
    }


def _snapshots(session: Session, run: Run, types: tuple[str, ...]) -> Iterator[tuple[str, Iterable[bytes]]]:
    if "metrics" in types:
        document = metrics_file(session, run)
        yield "metrics.json", [(json.dumps(document, indent=2, allow_nan=False) + "\n").encode()]
    if "trajectories" in types:
        lines = (json.dumps(summary_line(attempt), allow_nan=False) for attempt in attempts(session, run))
        yield "summary.jsonl", (f"{line}\n".encode() for line in lines)
    if "logs" in types:
        yield "logs.txt", (line.encode() for line in log_lines(session, run.id))


def _store(platform: Platform, chunks: Iterable[bytes]) -> StoredBlob:
    with platform.blobs.writer() as writer:
        for chunk in chunks:
            writer.write(chunk)
    return writer.stored


def _keep(platform: Platform, run_id: str, snapshots: list[tuple[str, StoredBlob]]) -> list[RunFile]:
    if snapshots:
        with platform.database.write() as session:
            for _path, blob in snapshots:
                record_blob(session, blob)
            rows = [
                {"run_id": run_id, "path": path, "sha256": blob.sha256, "size": blob.size}
                for path, blob in snapshots
            ]
            insert_missing(session, RunExport, rows)
    return [RunFile(path, blob.size, blob.sha256) for path, blob in snapshots]


def _stored_files(session: Session, run: Run, types: tuple[str, ...], rows: RowFilter) -> Iterator[RunFile]:
    if "trajectories" in types:
        query = (
            select(RunAttempt.row_index, RunAttempt.run_index, Blob.size, Blob.sha256)
            .join(Blob, Blob.sha256 == RunAttempt.trajectory_sha256)
            .where(RunAttempt.run_id == run.id)
            .order_by(RunAttempt.row_index, RunAttempt.run_index)
        )
        for row, attempt, size, sha256 in session.execute(query):
            if row in rows:
                yield RunFile(trajectory_path(row, attempt), size, sha256)
    if "artifacts" in types:
        found = session.scalars(
            select(RunArtifact)
            .where(RunArtifact.run_id == run.id, RunArtifact.path != "manifest.json")
            .order_by(RunArtifact.row_index, RunArtifact.run_index, RunArtifact.path)
        )
        for file in found:
            if file.row_index in rows:
                path = f"artifacts/row_{file.row_index}_run_{file.run_index}/{file.path}"
                yield RunFile(path, file.size, file.sha256)


def download_urls(platform: Platform, run_id: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Signed addresses of files named by a manifest; raises NotFound for a path that the run does not have."""
    with platform.database.read() as session:
        found = []
        for item in items:
            path, token = item["path"], item.get("token")
            sha256 = _locate(session, run_id, path, token)
            found.append(
                {
                    "path": path,
                    "token": token,
                    "url": platform.urls.download_url(sha256, path.rsplit("/", 1)[-1]),
                }
            )
    return {"items": found, "expires_in": 900}


def _locate(session: Session, run_id: str, path: str, token: str | None) -> str:
    """The blob of a path. The token alone proves nothing: a blob is given out only if it is a file of this run."""
    sha256: str | None = None
    if match := _TRAJECTORY.match(path):
        attempt = session.get(RunAttempt, (run_id, int(match[1]), int(match[2])))
        sha256 = attempt.trajectory_sha256 if attempt else None
    elif match := _ARTIFACT.match(path):
        file = session.get(RunArtifact, (run_id, int(match[1]), int(match[2]), match[3]))
        sha256 = file.sha256 if file else None
    else:
        query = select(RunExport).where(RunExport.run_id == run_id, RunExport.path == path)
        if token:
            query = query.where(RunExport.sha256 == token)
        export = session.scalar(query.order_by(RunExport.created_at.desc()).limit(1))
        sha256 = export.sha256 if export else None
    if sha256 is None:
        raise NotFound(f"The run has no file {path}; ask for a fresh manifest.")
    return sha256


def trajectory_path(row_index: int, run_index: int) -> str:
    """Where an attempt's trajectory goes."""
    return f"trajectories/row_{row_index}_run_{run_index}.json"


def attempts(session: Session, run: Run) -> Iterator[RunAttempt]:
    """Finished attempts by row and run index, read in pieces."""
    query = (
        select(RunAttempt)
        .where(RunAttempt.run_id == run.id)
        .order_by(RunAttempt.row_index, RunAttempt.run_index)
        .execution_options(yield_per=500)
    )
    yield from session.scalars(query)


def summary_line(attempt: RunAttempt) -> dict[str, Any]:
    """An attempt as one line of `summary.jsonl`; what is not there is left out."""
    line = {
        "row_index": attempt.row_index,
        "run_index": attempt.run_index,
        "rollout_id": attempt.rollout_id,
        "trajectory_filename": trajectory_path(attempt.row_index, attempt.run_index)
        if attempt.trajectory_sha256
        else None,
        "status": attempt.status,
        "reward": attempt.reward,
        "tokens": attempt.tokens,
        "duration_ms": attempt.duration_ms,
        "error_type": attempt.error_type,
        "error_message": attempt.error_message,
    }
    return {key: value for key, value in line.items() if value is not None}


def log_lines(session: Session, owner_id: str) -> Iterator[str]:
    """The log as text, one line an entry."""
    query = (
        select(LogLine.timestamp, LogLine.level, LogLine.step, LogLine.message)
        .where(LogLine.owner_id == owner_id)
        .order_by(LogLine.sequence)
        .execution_options(yield_per=1000)
    )
    for timestamp, level, step, message in session.execute(query):
        yield f"{timestamp.isoformat(timespec='milliseconds')} {level.upper():7} {step:8} {message}\n"
