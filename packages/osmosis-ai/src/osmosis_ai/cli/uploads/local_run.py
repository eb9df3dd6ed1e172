"""The files of a local evaluation in the layout of an import.

Locally a trajectory is called after its row and attempt; an import keeps the files of an attempt below its rollout id:
``rollout_trials/<rollout id>/trajectory.json`` and ``rollout_trials/<rollout id>/artifacts/...``.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.eval.local.folder import RunFolder, RunFolderError, write_lines

_RESERVED = "manifest.json"
_TRAJECTORY = "trajectory.json"


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """A file as it is announced, and where it lies here. ``sha256`` is 64 hex digits."""

    path: str
    source: Path
    size: int
    sha256: str

    @property
    def declaration(self) -> dict[str, Any]:
        """The file as it is announced."""
        return {"path": self.path, "size": self.size, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A complete local evaluation."""

    folder: Path
    manifest: dict[str, Any]
    progress: dict[str, Any]
    files: list[DeclaredFile]

    @property
    def digest(self) -> str:
        """SHA-256 over manifest and files: the same for the same content."""
        listing = [file.declaration for file in self.files]
        return hashlib.sha256(json.dumps([self.manifest, listing], sort_keys=True).encode()).hexdigest()


def read_local_run(folder: Path, scratch: Path) -> LocalRun:
    """Check that the evaluation is complete and its files agree; ``scratch`` takes the index as it is sent.

    Raises:
        CLIError: no local evaluation, an incomplete one, or files that contradict each other.
    """
    if not (folder / "manifest.json").is_file():
        raise CLIError(
            f"{folder} is no local evaluation: it has no manifest.json. 'osmosis eval run' makes one.",
            details={"path": str(folder)},
        )
    try:
        manifest = RunFolder(folder.parent, folder.name).manifest()
    except RunFolderError as error:
        raise CLIError(error.message, details=error.details) from error
    progress = _json(folder / "progress.json")
    index = [_object(line, folder / "index.jsonl") for line in _lines(folder / "index.jsonl")]
    _require_complete(folder, manifest, progress, index)
    sent_index = scratch / "index.jsonl"
    write_lines(sent_index, [_sent_line(line) for line in index])
    sources = {"index.jsonl": sent_index, "progress.json": folder / "progress.json"}
    if (folder / "logs.txt").is_file():
        sources["logs.txt"] = folder / "logs.txt"
    for line in index:
        sources |= dict(_attempt_files(folder, line))
    files = [_declared(path, source) for path, source in sorted(sources.items())]
    return LocalRun(folder, manifest, progress, files)


def _require_complete(
    folder: Path, manifest: dict[str, Any], progress: dict[str, Any], index: list[dict[str, Any]]
) -> None:
    inputs = manifest["inputs"]
    expected = int(inputs["selected_rows"]) * int(inputs["n"])
    if progress.get("status") != "finished" or len(index) < expected:
        raise CLIError(
            f"The evaluation in {folder} is not complete: {len(index):,} of {expected:,} attempts. Go on with: "
            f"osmosis eval run <config> --name {quote(folder.name)}",
            details={"finished": len(index), "expected": expected},
        )
    places = {(line.get("row_index"), line.get("run_index")) for line in index}
    metrics = _json(folder / "metrics.json").get("eval_run") or {}
    if (
        len(places) != expected
        or len(index) != expected
        or progress.get("total_runs") != expected
        or metrics.get("id") != manifest["local_run_id"]
    ):
        raise CLIError(
            f"The files in {folder} do not belong together: index, progress, metrics and manifest differ. Run the evaluation "
            f"again: osmosis eval run <config> --name {quote(folder.name)}",
            details={"path": str(folder)},
        )


def _sent_line(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "trajectory_filename": _TRAJECTORY} if line.get("trajectory_filename") else line


def _attempt_files(folder: Path, line: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    target = f"rollout_trials/{line['rollout_id']}"
    if line.get("trajectory_filename"):
        yield f"{target}/{_TRAJECTORY}", folder / str(line["trajectory_filename"])
    artifacts = folder / "artifacts" / f"row_{line['row_index']}_run_{line['run_index']}"
    for source in sorted(artifacts.rglob("*")):
        name = source.relative_to(artifacts).as_posix()
        if source.is_file() and not source.is_symlink() and name != _RESERVED:
            yield f"{target}/artifacts/{name}", source


def _declared(path: str, source: Path) -> DeclaredFile:
    try:
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return DeclaredFile(path, source, file.tell(), digest)
    except OSError as error:
        raise CLIError(
            f"{source} cannot be read: {error.strerror}. Run the evaluation again with --retry-failed, or --fresh.",
            details={"path": str(source)},
        ) from error


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise CLIError(f"{path} cannot be read: {error}.", details={"path": str(path)}) from error


def _json(path: Path) -> dict[str, Any]:
    return _object("\n".join(_lines(path)), path)


def _object(text: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CLIError(f"{path} is damaged: {error}.", details={"path": str(path)}) from error
    if not isinstance(found, dict):
        raise CLIError(f"{path} is damaged: an object is expected.", details={"path": str(path)})
    return found
