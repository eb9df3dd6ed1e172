"""What people do to runs that exist: give them another name, and delete those that are over."""

from __future__ import annotations

import re

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.service import record
from osmosis_platform.db.belongings import belongings
from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.runs.models import TERMINAL, LogLine, Run
from osmosis_platform.workspaces.removal import Leftovers

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Addresses of pages beside the runs' own.
RESERVED = frozenset({"new", "bulk", "compare"})


def rename(session: Session, run: Run, name: str, *, by: User) -> None:
    """Give a run another name; its LoRA models keep theirs. Raises InvalidInput, or Conflict for a name in use."""
    name = name.strip()
    if name == run.name:
        return
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise InvalidInput(
            "A run's name has 1 to 100 letters, digits, dots, dashes and underscores, and starts with a letter or digit.",
            field="name",
        )
    taken = select(Run.id).where(Run.workspace_id == run.workspace_id, Run.name == name)
    if session.scalar(taken) is not None:
        raise Conflict(
            f"Another run of this workspace is named {name}. Choose another name.",
            code="NAME_TAKEN",
            field="name",
        )
    _record(session, "rename", run, name, by, before=run.name, after=name)
    run.name = name


def why_not_deleted(session: Session, run: Run) -> str | None:
    """What keeps a run from being deleted: it is still at work, or one of its models is deployed."""
    if run.status not in TERMINAL:
        return f"Run {run.name} is {run.status}. Stop it first."
    deployed = session.scalar(
        select(LoraModel.name).where(LoraModel.run_id == run.id, LoraModel.deployment_status == "active")
    )
    if deployed is not None:
        return f"The model {deployed} of run {run.name} is deployed. Undeploy it first."
    return None


def delete_run(session: Session, run: Run, *, by: User) -> Leftovers:
    """Delete a run that is over with its attempts, metrics, log, trajectories and LoRA models; remove the leftovers after the commit.

    Its blobs go when nothing else names them. Raises Conflict when `why_not_deleted` has a reason.
    """
    session.refresh(run, with_for_update=True)
    reason = why_not_deleted(session, run)
    if reason is not None:
        raise Conflict(reason, code="RUN_IN_USE")
    models = session.scalars(select(LoraModel.id).where(LoraModel.run_id == run.id))
    leftovers = Leftovers([], [run.id], list(models))
    _record(session, "delete", run, run.name, by)
    session.execute(delete(LogLine).where(LogLine.owner_id == run.id))
    session.flush()
    everything = belongings(Run.metadata.tables["runs"], run.id)
    session.expunge(run)
    for table, condition in reversed(everything):
        session.execute(delete(table).where(condition))
    return leftovers


def _record(session: Session, verb: str, run: Run, target: str, by: User, **details: str) -> None:
    record(
        session,
        f"{run.kind}.{verb}",
        target,
        user_id=by.id,
        workspace_id=run.workspace_id,
        run_id=run.id,
        **details,
    )
