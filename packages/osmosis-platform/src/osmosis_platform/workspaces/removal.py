"""Takes a workspace away with everything in it, once nothing of it runs."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from osmosis_ai.rollout.utils.remove_tree import remove_tree
from osmosis_platform.accounts.models import User
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.audit.service import record
from osmosis_platform.compute.plan import run_folder
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.belongings import belongings
from osmosis_platform.dev_servers.models import LIVE, DevServer
from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.repositories.models import Connection, Repository, SyncEvent
from osmosis_platform.repositories.service import remove_unowned
from osmosis_platform.runs.models import TERMINAL, LogLine, Run
from osmosis_platform.workspaces.models import Workspace


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What lies on disk of a workspace that the database has forgotten: remove it after the commit."""

    repositories: list[str]
    runs: list[str]
    adapters: list[str]

    def remove(self, platform: Platform) -> None:
        """Delete the folders; what is gone already is fine. Blobs that no other workspace names go with the next sweep."""
        with platform.database.write() as session:
            for name in self.repositories:
                remove_unowned(session, platform, name)
        for run_id in self.runs:
            remove_tree(run_folder(platform, run_id).root)
        for model_id in self.adapters:
            remove_tree(platform.settings.data_dir.resolve() / "adapters" / model_id)


def delete_workspace(session: Session, workspace: Workspace, typed: str, *, by: User) -> Leftovers:
    """Delete the workspace and every row that belongs to it; its audit events stay, without workspace.

    `typed` is its name again. Raises InvalidInput when it is another one, Conflict while something runs.
    """
    if typed.strip() != workspace.name:
        raise InvalidInput(
            f"Type the name of the workspace, {workspace.name}, to delete it.", field="confirm"
        )
    # Whoever adds something to the workspace at this moment waits here, and then finds it gone.
    session.refresh(workspace, with_for_update=True)
    _check_idle(session, workspace.id)
    leftovers = Leftovers(
        _repositories(session, workspace.id),
        list(session.scalars(select(Run.id).where(Run.workspace_id == workspace.id))),
        list(session.scalars(select(LoraModel.id).where(LoraModel.workspace_id == workspace.id))),
    )
    for owner in (Run, Dataset, DevServer):
        ids = select(owner.id).where(owner.workspace_id == workspace.id)
        session.execute(delete(LogLine).where(LogLine.owner_id.in_(ids)))
    session.execute(
        update(AuditEvent).where(AuditEvent.workspace_id == workspace.id).values(workspace_id=None)
    )
    name = workspace.name
    session.expunge_all()
    everything = belongings(
        Workspace.metadata.tables["workspaces"], workspace.id, leave=[AuditEvent.__tablename__]
    )
    for table, condition in reversed(everything):
        session.execute(delete(table).where(condition))
    record(session, "workspace.delete", name, user_id=by.id, id=workspace.id)
    return leftovers


def _repositories(session: Session, workspace_id: str) -> list[str]:
    mine = Repository.workspace_id == workspace_id
    waiting = select(Connection.builtin_name).join(Repository).where(mine)
    return [
        *session.scalars(select(Repository.full_name).where(mine)),
        *(name for name in session.scalars(waiting) if name is not None),
    ]


def _check_idle(session: Session, workspace_id: str) -> None:
    busy = {
        "runs": select(Run.id).where(Run.workspace_id == workspace_id, Run.status.not_in(TERMINAL)),
        "development servers": select(DevServer.id).where(
            DevServer.workspace_id == workspace_id, DevServer.status.in_(LIVE)
        ),
        "datasets being processed": select(Dataset.id).where(
            Dataset.workspace_id == workspace_id, Dataset.status.in_(("pending", "processing"))
        ),
        "pushes being read": select(SyncEvent.id)
        .join(Repository)
        .where(Repository.workspace_id == workspace_id, SyncEvent.status.in_(("pending", "syncing"))),
    }
    counts = {
        what: session.scalar(select(func.count()).select_from(query.subquery()))
        for what, query in busy.items()
    }
    active = [f"{count} {what}" for what, count in counts.items() if count]
    if active:
        raise Conflict(
            f"Something is still at work: {', '.join(active)}. Stop it or wait for it, then delete the workspace.",
            code="WORKSPACE_BUSY",
        )
