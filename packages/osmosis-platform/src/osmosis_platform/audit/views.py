"""The audit log of a workspace, for its admins: who did what, newest first."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.http.paging import Offset, page_of
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep, page_at

router = APIRouter(include_in_schema=False)

# What an administrator does with a command at the machine has no person.
MACHINE = "machine"


@router.get("/{workspace}/settings/audit")
def audit_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    action: str = "",
    person: str = "",
    offset: Offset = 0,
) -> Response:
    """Events of the workspace; `action` and `person` (an id, or `machine`) choose among them."""
    viewer.require_role("admin", "read the audit log")
    page = page_at(offset)
    with platform.database.read() as session:
        mine = AuditEvent.workspace_id == viewer.workspace_id
        found, total = page_of(session, _query(viewer.workspace_id, action, person), page)
        everyone = _people(session, viewer.workspace_id)
        actions = list(
            session.scalars(select(AuditEvent.action).where(mine).distinct().order_by(AuditEvent.action))
        )
    names = dict(everyone)
    data = {
        "events": [_row(event, names) for event in found],
        "actions": actions,
        "people": [{"id": id, "name": name} for id, name in everyone],
        "filter": {"action": action, "person": person},
        "page": {"limit": page.limit, "offset": page.offset, "total": total},
    }
    chosen = urlencode({key: value for key, value in (("action", action), ("person", person)) if value})
    query = f"{chosen}&" if chosen else ""
    return render(request, "audit.html", data, viewer=viewer, room="settings", query=query)


def _query(workspace_id: str, action: str, person: str) -> Select[AuditEvent]:
    query = select(AuditEvent).where(AuditEvent.workspace_id == workspace_id)
    if action:
        query = query.where(AuditEvent.action == action)
    if person:
        query = query.where(AuditEvent.user_id == (None if person == MACHINE else person))
    return query.order_by(AuditEvent.created_at.desc(), AuditEvent.id.desc())


def _people(session: Session, workspace_id: str) -> list[tuple[str, str]]:
    """Ids and names of everybody who did something here, also of those who left."""
    ids = select(AuditEvent.user_id).where(AuditEvent.workspace_id == workspace_id)
    users = session.scalars(select(User).where(User.id.in_(ids)).order_by(User.name, User.email))
    people = [(user.id, f"{user.name} ({user.email})") for user in users]
    if session.scalar(ids.where(AuditEvent.user_id.is_(None)).limit(1).with_only_columns(AuditEvent.id)):
        people.append((MACHINE, "command at the machine"))
    return people


def _row(event: AuditEvent, names: dict[str, str]) -> dict[str, Any]:
    return {
        "id": event.id,
        "created_at": event.created_at.isoformat(),
        "action": event.action,
        "target": event.target,
        "person": names[event.user_id or MACHINE],
        "details": event.details,
    }
