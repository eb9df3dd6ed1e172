"""What an attempt was graded by: the expected answer of its row, and the metrics that its grader set."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from osmosis_platform.datasets.rows import rows_at
from osmosis_platform.evaluation.comparison import rows_file
from osmosis_platform.runs.models import Run
from osmosis_platform.storage.store import BlobStore


def measured(
    session: Session, blobs: BlobStore, run: Run, row_index: int, document: dict[str, Any]
) -> dict[str, Any]:
    """`label`, the expected answer (None without one), and `metrics` by name; `document` is what the trajectory says beside its steps.

    Where the trajectory has no label the row of the dataset is asked, also for attempts that failed before there was one.
    """
    told = _mapping(_mapping(document.get("extra")).get("osmosis"))
    label = told.get("label")
    if label is None:
        label = _label_of_row(session, blobs, run, row_index)
    return {"label": label, "metrics": _mapping(told.get("sample_metrics"))}


def _label_of_row(session: Session, blobs: BlobStore, run: Run, row_index: int) -> str | None:
    file = rows_file(session, blobs, [run]) if run.dataset_id else None
    rows = rows_at(file, row_index, 1).rows if file else []
    return rows[0].get("ground_truth") if rows else None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
