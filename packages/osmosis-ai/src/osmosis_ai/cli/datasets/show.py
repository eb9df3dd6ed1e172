"""Listing datasets, showing one, showing its first rows."""

import json
from shlex import quote
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import Column, DetailResult, ListResult
from osmosis_ai.cli.workspace import open_workspace

_DATASETS = Listing(
    "/datasets",
    "datasets",
    "Datasets",
    serializers.dataset,
    [
        Column("Name", lambda item: formats.text(item["file_name"])),
        Column("Status", lambda item: formats.token(item["status"])),
        Column("Size", lambda item: formats.size(item["file_size"])),
        Column("Uploaded", lambda item: formats.date(item["created_at"])),
        Column("Uploaded By", lambda item: formats.text(item["creator_name"])),
    ],
    when_empty="No datasets yet. Upload one with: osmosis dataset upload <file>",
    next_text=["Details: osmosis dataset info <name>"],
)


def list_datasets(limit: int, everything: bool) -> ListResult:
    """The datasets of the workspace."""
    return _DATASETS.list(limit, everything)


def dataset_info(name: str) -> DetailResult:
    """One dataset."""
    found, context = _fetch(name)
    shown = serializers.dataset(found)
    hints = [f"View: {shown['platform_url']}"] if shown.get("platform_url") else []
    if shown["status"] == "error":
        hints.append(f"See logs with: osmosis dataset logs {quote(name)}")
    following = []
    if shown["status"] == "uploaded":
        following = [
            f"Rows: osmosis dataset preview {quote(name)}",
            f'Use it in a config: dataset = "{shown["file_name"]}"',
        ]
    return DetailResult({**shown, **context}, _rows(found), title="Dataset", hints=hints, next_text=following)


def preview_dataset(name: str, count: int) -> DetailResult:
    """The first rows that the platform keeps for a preview."""
    found, context = _fetch(name)
    preview = found.get("data_preview")
    rows = preview[: max(count, 0)] if isinstance(preview, list) else preview
    returned = 0 if rows is None else len(rows) if isinstance(rows, list) else 1
    data: dict[str, Any] = {
        "dataset": serializers.dataset(found),
        "rows": rows,
        "requested_rows": count,
        "returned_rows": returned,
        "available": rows is not None,
        **context,
    }
    lines = [
        ("Dataset", formats.text(found.get("file_name"))),
        ("Rows", f"{returned} of {formats.text(found.get('row_count'))}"),
    ]
    if rows is None:
        processing = found.get("status") in {"uploading", "pending", "processing"}
        data["message"] = "The dataset is still processing." if processing else "No preview available."
        return DetailResult(data, lines, title="Preview", hints=[data["message"]])
    lines += [
        (f"Row {number}", json.dumps(_readable(row), ensure_ascii=False))
        for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1)
    ]
    return DetailResult(data, lines, title="Preview")


def _readable(row: Any) -> Any:
    """The row with its metadata as the object that the platform keeps as JSON text."""
    text = row.get("metadata") if isinstance(row, dict) else None
    try:
        metadata = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return row
    return {**row, "metadata": metadata} if isinstance(metadata, dict) else row


def _fetch(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status("Fetching dataset..."):
        return client.get(f"/datasets/{segment(name)}"), workspace.context


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    stored, original = found.get("file_format"), found.get("original_file_format")
    kind = formats.text(stored and str(stored).upper())
    if original and original != stored:
        kind += f" (uploaded as {str(original).upper()})"
    size = formats.size(found.get("file_size"))
    if found.get("original_file_size"):
        size += f" (uncompressed: {formats.size(found['original_file_size'])})"
    identity = [("ID", str(found["id"]))] if found.get("is_internal_user") else []
    return [
        ("File", formats.text(found.get("file_name"))),
        *identity,
        ("Status", formats.title(found.get("status"))),
        ("File Format", kind),
        ("Total Rows", formats.count(found.get("row_count"))),
        ("Size", size),
        ("Uploaded", formats.date(found.get("created_at"), seconds=True)),
        ("Uploaded By", formats.text(found.get("creator_name"))),
    ]
