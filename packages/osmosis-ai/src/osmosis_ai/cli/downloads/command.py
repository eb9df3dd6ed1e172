"""``osmosis eval download``: select, ask when it is much, fetch, report."""

from collections import Counter
from pathlib import Path
from typing import Any

from osmosis_ai.cli.downloads.manifest import (
    RUN_DOWNLOADS,
    Manifest,
    check_rows,
    fetch_manifest,
    parse_types,
    rows_without_files,
)
from osmosis_ai.cli.downloads.transfer import Outcome, fetch_files, is_present
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import progress, status, warn
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.run_output import run_root
from osmosis_ai.cli.workspace import open_workspace
from osmosis_ai.platform.api.client import segment

_ASK_ABOVE = 100 * 1024 * 1024
_NOUNS = {"eval": "eval_run", "benchmark": "benchmark_run"}


def download_outputs(
    kind_name: str,
    name: str,
    types_text: str,
    rows: str | None,
    output: str | None,
    *,
    overwrite: bool,
    yes: bool,
) -> OperationResult:
    """Fetch the selected outputs of a run; what is there in the right size is skipped.

    Raises:
        CLIError: bad selection, a run that has not started, or nothing to fetch.
        PlatformError: the platform could not be asked.
    """
    kind, noun = RUN_DOWNLOADS[kind_name], _NOUNS[kind_name]
    types = parse_types(types_text, kind)
    check_rows(rows)
    workspace = open_workspace()
    operation = f"{kind_name}.download"
    with workspace.client as client:
        with status("Fetching run..."):
            run: dict[str, Any] = client.get(f"/{kind.path}/{segment(name)}")[noun]
            _require_started(kind_name, run)
            root = run_root(workspace.root, kind.folder, run.get("name"), run["id"], output)
            manifest = fetch_manifest(client, kind, run["id"], types, rows)
        if missing := rows_without_files(rows, manifest):
            warn(
                "ROWS_NOT_FOUND",
                f"--rows: the run has no files of the selected types for {', '.join(missing)}.",
            )
        pending = sum(file.size for file in manifest.files if overwrite or not is_present(root, file))
        if pending > _ASK_ABOVE and not confirmed(_question(manifest, pending, root, types), yes=yes):
            return OperationResult(operation, status="cancelled", message="Cancelled.")
        with progress("Downloading", pending) as show:
            outcome = fetch_files(
                client, kind, run["id"], manifest.files, root, overwrite=overwrite, progress=show
            )
    outcome.failed = [*manifest.refused, *outcome.failed]
    resource: dict[str, Any] = {
        noun: {"id": run["id"], "name": run.get("name")},
        "status": run.get("status"),
        "selected_types": types,
        **_counts(manifest, outcome),
        "output_path": str(root),
        **workspace.context,
    }
    if kind_name == "eval":
        resource["rows"] = rows
    return OperationResult(
        operation,
        status="partial" if outcome.failed else "success",
        resource=resource,
        message=_message(outcome, root),
        next_text=[f"Failed: {entry['path']} — {entry['error']}" for entry in outcome.failed],
    )


def _require_started(kind_name: str, run: dict[str, Any]) -> None:
    state = run.get("status")
    waiting = {"pending"} if kind_name == "eval" else {"pending", "queued"}
    if state in waiting:
        code = "VALIDATION" if kind_name == "eval" else "CONFLICT"
        raise CLIError(
            f"The run has not started (status: {state}); there is nothing to download yet.", code=code
        )


def _question(manifest: Manifest, pending: int, root: Path, types: list[str]) -> Question:
    summary = {
        "Files": formats.count(len(manifest.files)),
        "Download size": formats.size(pending),
        "Destination": str(root),
    }
    return Question("Download run outputs?", summary, notes=[f"Selected types: {', '.join(types)}"])


def _counts(manifest: Manifest, outcome: Outcome) -> dict[str, Any]:
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for file in manifest.files:
        files[file.category] += 1
        sizes[file.category] += file.size
    return {
        "files_downloaded": len(outcome.downloaded),
        "files_skipped": len(outcome.skipped),
        "files_failed": outcome.failed,
        "bytes_downloaded": outcome.bytes_downloaded,
        "total_files": len(manifest.files),
        "total_bytes": sum(sizes.values()),
        "breakdown": {category: {"files": files[category], "bytes": sizes[category]} for category in files},
        "manifest_totals": manifest.totals,
    }


def _message(outcome: Outcome, root: Path) -> str:
    count = len(outcome.downloaded)
    text = f"Downloaded {count} file{'' if count == 1 else 's'} ({formats.size(outcome.bytes_downloaded)}) to {root}"
    if outcome.skipped:
        text += f", {len(outcome.skipped)} up to date"
    return text + (f", {len(outcome.failed)} failed" if outcome.failed else "")
