"""Checking a dataset file before it is sent."""

from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import progress
from osmosis_ai.cli.output.results import DetailResult
from osmosis_ai.datasets import EXTENSIONS, MAX_FILE_BYTES, ValidationReport, validate_file

_SHOW_PROGRESS_FROM_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that passed all checks. ``extension`` has no dot and is lower case."""

    path: Path
    extension: str
    size: int
    warnings: list[str]


def check_file(file: str, heading: str) -> CheckedFile:
    """Existence, type, size and every row of a file. ``heading`` opens the message about bad content.

    Raises:
        CLIError: the first broken rule about the file, or all problems of its content.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        kind = (
            " is a folder; name a file in it"
            if path.is_dir()
            else " is no regular file"
            if path.exists()
            else ""
        )
        raise CLIError(f"File not found: {file}{kind}", details={"file": file})
    path = path.parent.resolve() / path.name  # a link keeps the name that was given
    extension = path.suffix.lower().removeprefix(".")
    if extension not in EXTENSIONS:
        raise CLIError(f"Unsupported file type '{path.suffix}'. Supported: {', '.join(EXTENSIONS)}")
    if not path.stem.strip(" .\t"):
        raise CLIError(
            f"A dataset cannot be named '{path.stem}', which is what {path.name} would give it. Rename the file.",
            details={"file": str(path), "field": "file_name"},
        )
    size = path.stat().st_size
    if size == 0:
        raise CLIError("File is empty.")
    if size > MAX_FILE_BYTES:
        raise CLIError(
            f"File is too large: {formats.size(size)}. The limit is {formats.size(MAX_FILE_BYTES)}."
        )
    report = _read_all(path, size)
    if report.errors:
        bullets = "\n".join(f"  - {error}" for error in report.errors)
        raise CLIError(
            f"{heading} {path.name}\n{bullets}",
            details={"file": str(path), "errors": report.errors, "problems": report.problems},
        )
    return CheckedFile(path, extension, size, report.warnings)


def _read_all(path: Path, size: int) -> ValidationReport:
    if size < _SHOW_PROGRESS_FROM_BYTES:
        return validate_file(path)
    with progress("Checking", size) as show:
        return validate_file(path, progress=show)


def validate_dataset(file: str) -> DetailResult:
    """The checks of an upload, without uploading; works offline and anywhere."""
    checked = check_file(file, "Validation failed:")
    data = {
        "valid": True,
        "file": str(checked.path),
        "file_name": checked.path.name,
        "extension": checked.extension,
        "file_size": checked.size,
        "errors": [],
        "warnings": checked.warnings,
    }
    rows = [
        ("File", checked.path.name),
        ("Size", formats.size(checked.size)),
        ("Status", f"Valid {checked.extension} file"),
        *(("Warning", warning) for warning in checked.warnings),
    ]
    return DetailResult(data, rows, title="Dataset Validation")
