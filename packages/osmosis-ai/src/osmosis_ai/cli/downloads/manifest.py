"""Which files a run offers, and which of them are accepted."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.errors import PlatformError

_ROWS = re.compile(r"[0-9]{1,1000}(-[0-9]{1,1000})?(,[0-9]{1,1000}(-[0-9]{1,1000})?)*")
_RESERVED_ARTIFACT = re.compile(r"artifacts/row_\d+_run_\d+/manifest\.json")
_FILE_OF_A_ROW = re.compile(r"(?:trajectories|artifacts)/row_(\d+)_run_")


@dataclass(frozen=True, slots=True)
class RunDownloads:
    """How downloads of one kind of run work: its address, selectors and folder."""

    path: str
    outputs: str
    types: tuple[str, ...]
    folder: str


RUN_DOWNLOADS = {
    "eval": RunDownloads("eval-runs", "samples", ("metrics", "trajectories", "artifacts", "logs"), "evals"),
    "benchmark": RunDownloads(
        "benchmark-runs", "outputs", ("summary", "results", "artifacts", "logs"), "benchmarks"
    ),
}


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that a run offers; ``token`` is echoed back when its address is asked for."""

    path: str
    size: int
    category: str
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Accepted files, refused ones (``path``, ``error``), and the platform's totals."""

    files: list[RemoteFile]
    refused: list[dict[str, str]]
    totals: dict[str, Any] | None = field(default=None)


def parse_types(text: str, kind: RunDownloads) -> list[str]:
    """The selectors of ``--type``, each once, in the order given.

    Raises:
        CLIError: an unknown one, or ``all`` beside others.
    """
    given = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    allowed = ", ".join((*kind.types, "all"))
    unknown = [name for name in given if name != "all" and name not in kind.types]
    if unknown or not given:
        raise CLIError(f"Unknown --type value(s): {', '.join(unknown) or '(none)'}. Allowed: {allowed}.")
    if "all" in given:
        if len(given) > 1:
            raise CLIError("--type all cannot be combined with other values.")
        return list(kind.types)
    return given


def check_rows(rows: str | None) -> None:
    """Refuse a bad row selection before anything is fetched.

    Raises:
        CLIError: another syntax than ``3,7,10-20``, or a range that runs backwards.
    """
    if rows is None:
        return
    if not _ROWS.fullmatch(rows):
        raise CLIError(f"--rows must use syntax like 3,7,10-20, got {rows!r}.")
    for part in rows.split(","):
        start, _, end = part.partition("-")
        if end and int(start) > int(end):
            raise CLIError(f"--rows range {part}: start exceeds end.")


def rows_without_files(rows: str | None, manifest: Manifest) -> list[str]:
    """The parts of a row selection that match none of the files."""
    found = {int(match[1]) for file in manifest.files if (match := _FILE_OF_A_ROW.match(file.path))}
    missing = []
    for part in rows.split(",") if rows else []:
        start, _, end = part.partition("-")
        if not any(int(start) <= row <= int(end or start) for row in found):
            missing.append(part)
    return missing


def fetch_manifest(
    client: PlatformClient, kind: RunDownloads, run_id: str, types: list[str], rows: str | None
) -> Manifest:
    """The files of a run, sorted into accepted and refused.

    Raises:
        CLIError: the platform offers nothing, or only what is refused.
        PlatformError: it could not be asked.
    """
    try:
        answer = client.get(
            f"/{kind.path}/{segment(run_id)}/{kind.outputs}/manifest",
            {"types": ",".join(types), "rows": rows},
        )
    except PlatformError as error:
        if error.status_code != 404:
            raise
        raise CLIError(
            "The platform has no downloads for this run: it was deleted, or the platform does not support them.",
            details=error.details,
        ) from error
    listed = answer.get("files", [])
    if not listed:
        raise CLIError("No downloadable files matched the selection.")
    files: list[RemoteFile] = []
    refused: list[dict[str, str]] = []
    for entry in listed:
        path, problem = str(entry.get("path")), None
        category = _category(path, kind)
        if category is None:
            problem = "not a path of a run's output"
        elif category not in types:
            problem = f"its type ({category}) was not selected"
        elif any(path == known.path for known in files):
            problem = "listed twice"
        if problem is not None or category is None:
            refused.append({"path": path, "error": problem or ""})
        else:
            files.append(RemoteFile(path, int(entry["size"]), category, entry.get("token")))
    if not files:
        raise CLIError("The platform offered no usable run-scoped paths.", details={"files_failed": refused})
    return Manifest(files, refused, answer.get("totals"))


def escapes(root: Path, path: str) -> bool:
    """Whether a symlink below the root leads a path out of it."""
    return not (root / path).resolve().is_relative_to(root.resolve())


def _category(path: str, kind: RunDownloads) -> str | None:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or any(part in {"", ".", ".."} for part in parts):
        return None
    if kind.path == "benchmark-runs":
        single = {"summary.csv": "summary", "results.csv": "results", "logs.txt": "logs"}
        return single.get(path) or ("artifacts" if parts[0] == "artifacts" and len(parts) >= 3 else None)
    single = {"metrics.json": "metrics", "summary.jsonl": "trajectories", "logs.txt": "logs"}
    if path in single:
        return single[path]
    if parts[0] == "artifacts" and len(parts) >= 2 and not _RESERVED_ARTIFACT.fullmatch(path):
        return "artifacts"
    return "trajectories" if parts[0] == "trajectories" and len(parts) >= 2 else None
