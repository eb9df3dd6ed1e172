"""Uploading a dataset: check, announce, send, complete."""

import time
from shlex import quote
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.datasets.checks import CheckedFile, check_file
from osmosis_ai.cli.datasets.sending import send
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status, warn
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.workspace import open_workspace
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.errors import PlatformError

_COMPLETE_WAITS_S = (1.0, 2.0, 4.0, 8.0)
# Who asked was refused, not what was asked.
_OF_THE_CLIENT = frozenset({"AUTH_REQUIRED", "UPGRADE_REQUIRED"})


def upload_dataset(file: str, *, overwrite: bool, yes: bool) -> OperationResult:
    """Upload a file under the name of its stem.

    Raises:
        CLIError: the file is bad, or the name is taken and ``--overwrite`` is not given (``CONFLICT``).
        PlatformError: refused or broken off; the platform is told to forget the upload.
    """
    workspace = open_workspace()
    checked = check_file(file, "File validation failed:")
    for text in checked.warnings:
        warn("PARQUET_VALIDATION_SKIPPED", text)
    if not confirmed(_question(checked, overwrite), yes=yes):
        return OperationResult("dataset.upload", status="cancelled", message="Cancelled.")
    with workspace.client as client:
        with status("Preparing upload..."):
            created = _create(client, checked, overwrite)
        try:
            parts = send(checked, created.get("upload") or {})
        except BaseException:
            _abort(client, str(created["id"]))
            raise
        with status("Completing upload..."):
            finished = complete(client, created["id"], checked.extension, parts)
    shown = serializers.dataset({**created, **finished})
    url = shown.get("platform_url")
    name = shown.get("file_name") or checked.path.stem
    steps = (
        [{"label": "View dataset", "url": url}] if url else [{"action": "dataset_info", "id": created["id"]}]
    )
    return OperationResult(
        "dataset.upload",
        resource={**shown, **workspace.context},
        message=f"Dataset uploaded: {name}",
        next_steps=steps,
        next_text=[
            f"Follow its processing with: osmosis dataset info {quote(name)}",
            *([f"View: {url}"] if url else []),
        ],
    )


def complete(
    client: PlatformClient, dataset_id: str, extension: str, parts: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Tell the platform that all bytes are there; repeated when it does not answer well.

    Raises:
        PlatformError: refused, or failing five times; ``details["dataset_id"]`` names the dataset.
    """
    body: dict[str, Any] = {"file_extension": extension}
    if parts is not None:
        body["parts"] = parts
    for wait in (*_COMPLETE_WAITS_S, None):
        try:
            return client.post(
                f"/datasets/{segment(dataset_id)}/complete", body, timeout=120.0 if parts else 30.0
            )
        except PlatformError as error:
            final = (
                error.status_code is not None and 400 <= error.status_code < 500 and error.status_code != 429
            )
            if final or wait is None:
                raise PlatformError(
                    f"The file was sent but the upload could not be completed: {error.message}",
                    code=error.code if error.code in _OF_THE_CLIENT else None,
                    details={**error.details, "dataset_id": dataset_id},
                ) from error
        time.sleep(wait)
    raise AssertionError("unreachable")


def _question(checked: CheckedFile, overwrite: bool) -> Question:
    summary = {"File": checked.path.name, "Size": formats.size(checked.size)}
    if not overwrite:
        return Question("Upload this dataset?", summary, default=True)
    warning = f"--overwrite replaces an existing dataset named '{checked.path.stem}'."
    return Question("Upload this dataset and overwrite an existing one?", summary, warnings=[warning])


def _create(client: PlatformClient, checked: CheckedFile, overwrite: bool) -> dict[str, Any]:
    body = {"file_name": checked.path.stem, "file_size": checked.size, "extension": checked.extension}
    try:
        return client.post("/datasets", body)
    except PlatformError as error:
        existing = error.details.get("existing_dataset_id")
        if error.status_code != 409 or not isinstance(existing, str):
            raise
        if not overwrite:
            raise CLIError(
                f"A dataset named '{checked.path.stem}' already exists. Pass --overwrite to replace it.",
                code="CONFLICT",
                details={"existing_dataset_id": existing},
            ) from error
    return client.post("/datasets", {**body, "overwrite_dataset_id": existing})


def _abort(client: PlatformClient, dataset_id: str) -> None:
    try:
        client.post(f"/datasets/{segment(dataset_id)}/abort")
    except OsmosisError as error:
        warn("ABORT_FAILED", f"The broken upload could not be removed from the platform: {error.message}")
