"""``osmosis eval upload``: announce, send, finalize. Broken off, the same command goes on."""

import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from osmosis_ai.cli.downloads.workers import each_in_parallel
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import progress, status
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.uploads.local_run import DeclaredFile, LocalRun, read_local_run
from osmosis_ai.cli.uploads.sending import send_file
from osmosis_ai.cli.workspace import open_workspace
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.errors import PlatformError

PATH = "/eval-runs/imports"
_WORKERS = 4
_BATCH = 100
_FINALIZE_TIMEOUT_S = 300.0
_SCHEMA_VERSIONS = {"rollout_protocol": "0.4", "dataset_normalization": 1, "state_schema": 1}
_PROVENANCE = (
    "sdk_version",
    "git_head",
    "git_branch",
    "git_dirty",
    "config_branch",
    "config_commit_sha",
    "config_path",
)


def upload_run(name_or_folder: str, *, replace: bool) -> OperationResult:
    """Make a run on the platform from a complete local evaluation.

    Raises:
        CLIError: the evaluation is incomplete, or was uploaded before with other content (``CONFLICT``).
        PlatformError: refused or broken off.
    """
    workspace = open_workspace()
    with tempfile.TemporaryDirectory(prefix="osmosis-upload-") as scratch, workspace.client as client:
        with status("Reading the evaluation..."):
            run = read_local_run(_folder(name_or_folder, workspace.root), Path(scratch))
        session = _start(client, run, replace)
        _send(client, str(session["session_id"]), run.files)
        with status("Finalizing..."):
            path = f"{PATH}/{segment(session['session_id'])}/finalize"
            done = client.post(path, timeout=_FINALIZE_TIMEOUT_S)
    if done.get("status") != "finalized":
        raise PlatformError(f"The platform did not finish the import: it is {done.get('status')!r}.")
    return _result(run, done, workspace.context)


def _folder(name_or_folder: str, root: Path) -> Path:
    given = Path(name_or_folder).expanduser()
    if given.is_dir() or len(given.parts) > 1:
        return given.resolve()
    return root / ".osmosis" / "evals" / name_or_folder


def _start(client: PlatformClient, run: LocalRun, replace: bool) -> dict[str, Any]:
    inputs, provenance = run.manifest["inputs"], run.manifest.get("provenance") or {}
    body = {
        "schema_version": 1,
        "local_run_id": run.manifest["local_run_id"],
        "manifest_digest": run.digest,
        "run": {
            "name": run.folder.name,
            "started_at": run.manifest["created_at"],
            "completed_at": run.progress["completed_at"],
            "experiment_config": {
                "rollout": {"name": inputs["rollout"], "source_digest": inputs["source_digest"]},
                "entrypoint": inputs["entrypoint"],
                "model_path": inputs["model_path"],
                "dataset": {
                    "name": inputs["dataset"],
                    "sha256": inputs["dataset_sha256"],
                    "selected_source_rows": inputs["selected_source_rows"],
                },
            },
            "evaluation_config": {"n": inputs["n"], "pass_threshold": inputs["pass_threshold"]},
        },
        "schema_versions": _SCHEMA_VERSIONS,
        "provenance": {key: provenance[key] for key in _PROVENANCE if provenance.get(key) is not None},
        "files": [file.declaration for file in run.files],
        "reimport": replace,
    }
    try:
        with status("Announcing the upload..."):
            session = client.post(PATH, body)
    except PlatformError as error:
        if error.status_code == 409 and not replace:
            raise CLIError(
                f"{error.message} Pass --replace to replace what was uploaded before.",
                code=error.code,
                details=error.details,
            ) from error
        raise
    _require_same(run, session)
    return session


def _require_same(run: LocalRun, session: dict[str, Any]) -> None:
    """The platform repeats what was announced; anything else would mix up two evaluations."""
    echoed = {
        (entry.get("path"), entry.get("size"), entry.get("sha256")) for entry in session.get("files") or []
    }
    if echoed != {(file.path, file.size, file.sha256) for file in run.files}:
        raise PlatformError("The platform answered with other files than were announced; nothing was sent.")


def _send(client: PlatformClient, session_id: str, files: Sequence[DeclaredFile]) -> None:
    path = f"{PATH}/{segment(session_id)}/uploads"
    by_path = {file.path: file for file in files}
    lock, sent = threading.Lock(), 0

    def one(stop: threading.Event, instruction: dict[str, Any]) -> None:
        nonlocal sent
        file = by_path[str(instruction["path"])]
        parts = send_file(file, instruction["upload"], stop)
        body: dict[str, Any] = {"path": file.path}
        if parts is not None:
            body["parts"] = parts
        client.post(f"{path}/complete", body)
        with lock:
            sent += file.size
            show(sent)

    with progress("Uploading", sum(file.size for file in files)) as show:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            answer = client.post(path, {"paths": [file.path for file in batch]})
            missing = answer.get("files") or []
            if any(entry.get("path") not in by_path for entry in missing):
                raise PlatformError("The platform asked for a file that was not announced.")
            already = {file.path for file in batch} - {entry["path"] for entry in missing}
            with lock:
                sent += sum(by_path[path].size for path in already)
                show(sent)
            stop = threading.Event()
            for _ in each_in_parallel(partial(one, stop), missing, _WORKERS, stop):
                pass


def _result(run: LocalRun, done: dict[str, Any], context: dict[str, Any]) -> OperationResult:
    name, url = done.get("eval_run_name"), done.get("platform_url")
    return OperationResult(
        "eval.upload",
        resource={
            "session_id": done["session_id"],
            "local_run_id": run.manifest["local_run_id"],
            "local_run_path": str(run.folder),
            "eval_run_id": done.get("eval_run_id"),
            "eval_run_name": name,
            "status": done["status"],
            "expected_files": done.get("expected_files"),
            "uploaded_files": done.get("uploaded_files"),
            "platform_url": url,
            **context,
        },
        message=f"Evaluation uploaded: {name}",
        next_text=[f"Details: osmosis eval info {quote(str(name))}", *([f"View: {url}"] if url else [])],
    )
