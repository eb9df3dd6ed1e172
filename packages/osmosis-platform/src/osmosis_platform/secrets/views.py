"""The secrets page: names and scopes, never values."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from osmosis_platform.accounts.models import User
from osmosis_platform.http.paging import Offset, page_of
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.secrets import service
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep, page_at

router = APIRouter(include_in_schema=False)
SCOPES = {"workspace": "workspace", "user": "personal"}


@router.get("/{workspace}/secrets")
def secrets_page(request: Request, platform: PlatformDep, viewer: ViewerDep, offset: Offset = 0) -> Response:
    """Secrets of the workspace and the person's own, newest first."""
    page = page_at(offset)
    with platform.database.read() as session:
        found, total = page_of(session, service.list_query(viewer.workspace_id, viewer.user.id), page)
        people = {secret.creator_id: session.get(User, secret.creator_id) for secret in found}
        items = [
            {
                "id": secret.id,
                "name": secret.name,
                "scope": SCOPES[secret.scope],
                "updated_at": secret.updated_at.isoformat(),
                "creator_name": person.name if (person := people[secret.creator_id]) else None,
            }
            for secret in found
        ]
    data = {"secrets": items, "page": {"limit": page.limit, "offset": page.offset, "total": total}}
    return render(request, "secrets.html", data, viewer=viewer, room="secrets")
