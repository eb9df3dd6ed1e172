"""What webhooks tell about a dataset."""

from __future__ import annotations

from sqlalchemy.orm import Session

from osmosis_platform.datasets.models import Dataset
from osmosis_platform.webhooks.service import announce
from osmosis_platform.workspaces.models import Workspace


def announce_outcome(session: Session, dataset: Dataset) -> None:
    """Queue the event of a dataset that was checked: it can be used, or `error` says why not."""
    workspace = session.get_one(Workspace, dataset.workspace_id)
    announce(
        session,
        dataset.workspace_id,
        "dataset.ready" if dataset.status == "uploaded" else "dataset.failed",
        subject=dataset.name,
        page=f"/{workspace.name}/datasets/{dataset.id}",
        data=lambda: {
            "id": dataset.id,
            "name": dataset.name,
            "status": dataset.status,
            "row_count": dataset.row_count,
            "error": dataset.error,
        },
    )
