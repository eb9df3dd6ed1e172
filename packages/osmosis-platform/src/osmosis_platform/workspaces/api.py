"""`/api/cli/workspaces` and `/api/cli/quickstart`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.errors import NotFound
from osmosis_platform.http.scope import CurrentUser, PlatformDep
from osmosis_platform.repositories.models import Repository
from osmosis_platform.workspaces import service

router = APIRouter(prefix="/api/cli", tags=["workspaces"])


class QuickstartDone(BaseModel):
    """What the person set out to do in which workspace."""

    workspace_id: Annotated[str, Field(alias="organizationId")]
    intent: Literal["train", "eval", "benchmark", "explore"]


@router.get("/workspaces")
def list_workspaces(caller: CurrentUser, platform: PlatformDep) -> dict[str, Any]:
    """The caller's workspaces. Not paged: a person is in few."""
    with platform.database.read() as session:
        mine = service.workspaces_of(session, caller.user.id)
    return {
        "workspaces": [
            {
                "id": item.workspace.id,
                "name": item.workspace.name,
                "role": item.role,
                "has_billing_setup": True,
                "connected_repo": item.repository
                and {"id": item.repository.id, "repo_full_name": item.repository.full_name},
            }
            for item in mine
        ]
    }


@router.get("/quickstart")
def quickstart(
    workspace_id: Annotated[str, Query(alias="organizationId")], caller: CurrentUser, platform: PlatformDep
) -> dict[str, Any]:
    """What is still to be set up in a workspace. Nothing is billed here, so billing is always ready."""
    with platform.database.read() as session:
        _check_member(session, workspace_id, caller.user.id)
        full_name = session.scalar(
            select(Repository.full_name).where(Repository.workspace_id == workspace_id)
        )
        completed = service.quickstart_completed(session, workspace_id, caller.user.id)
    return {
        "repo": {"connected": full_name is not None, "full_name": full_name},
        "billing_ready": True,
        "completed": completed,
    }


@router.post("/quickstart")
def complete_quickstart(body: QuickstartDone, caller: CurrentUser, platform: PlatformDep) -> dict[str, Any]:
    """Note that the caller went through the quickstart."""
    with platform.database.write() as session:
        _check_member(session, body.workspace_id, caller.user.id)
        service.complete_quickstart(session, body.workspace_id, caller.user.id, body.intent)
    return {"completed": True}


def _check_member(session: Session, workspace_id: str, user_id: str) -> None:
    if service.membership_of(session, workspace_id, user_id) is None:
        raise NotFound("There is no such workspace that you belong to.", code="WORKSPACE_NOT_FOUND")
