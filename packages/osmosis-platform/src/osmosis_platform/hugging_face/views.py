"""Pages of Hugging Face: the workspace's tokens, and the start of an upload. A token only comes in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.views import safe_target
from osmosis_platform.adapters.service import find_lora
from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.hugging_face import tokens, uploads
from osmosis_platform.hugging_face.models import HubToken
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep

router = APIRouter(include_in_schema=False)
PATH = "/{workspace}/settings/hugging-face"
TO_CHANGE = "change Hugging Face tokens of the workspace"


@router.get(PATH)
def tokens_page(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """The tokens of the workspace: who added each, and when."""
    return _page(request, platform, viewer)


@router.post(PATH, dependencies=[Csrf])
def add_token(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name: Annotated[str, Form()] = "",
    value: Annotated[str, Form()] = "",
) -> Response:
    """Add a token, once the hub has said whose it is. What was typed as its value is never sent back."""
    viewer.require_role("admin", TO_CHANGE)
    name, value = name.strip(), value.strip()
    try:
        account = tokens.account_of(platform.settings.hf_endpoint, value)
        with platform.database.write() as session:
            tokens.add_token(
                session,
                platform.keys,
                viewer.workspace_id,
                viewer.user,
                name=name,
                value=value,
                account=account,
            )
    except (InvalidInput, Conflict) as problem:
        return _page(request, platform, viewer, name=name, error=problem.message, status=problem.status)
    return _back(viewer)


@router.post(PATH + "/{token_id}/delete", dependencies=[Csrf])
def delete_token(platform: PlatformDep, viewer: ViewerDep, token_id: str) -> Response:
    """Delete a token."""
    viewer.require_role("admin", TO_CHANGE)
    with platform.database.write() as session:
        tokens.delete_token(session, viewer.workspace_id, token_id, viewer.user)
    return _back(viewer)


@router.post("/{workspace}/models/{model_id}/hugging-face/uploads", dependencies=[Csrf])
def start_upload(
    platform: PlatformDep,
    viewer: ViewerDep,
    model_id: str,
    token: Annotated[str, Form()] = "",
    repository: Annotated[str, Form()] = "",
    visibility: Annotated[Literal["private", "public"], Form()] = "private",
    back: Annotated[str, Form()] = "",
) -> Response:
    """Upload a LoRA model's adapter, or try that again."""
    with platform.database.write() as session:
        model = find_lora(session, viewer.workspace_id, model_id)
        uploads.start_upload(
            session,
            platform,
            viewer.user,
            model,
            token_id=token,
            repository=repository.strip(),
            private=visibility == "private",
        )
        target = back or f"/{viewer.workspace}/models/{model.id}#hugging-face"
    return RedirectResponse(safe_target(target), status_code=303)


def _back(viewer: Viewer) -> Response:
    return RedirectResponse(f"/{viewer.workspace}/settings/hugging-face", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    viewer: Viewer,
    *,
    name: str = "",
    error: str | None = None,
    status: int = 200,
) -> Response:
    with platform.database.read() as session:
        found = [_row(session, token) for token in session.scalars(tokens.list_query(viewer.workspace_id))]
    data = {"tokens": found, "max_tokens": tokens.MAX_TOKENS, "error": error}
    chrome: dict[str, Any] = {"name": name, "endpoint": platform.settings.hf_endpoint}
    return render(request, "hugging_face.html", data, status=status, viewer=viewer, room="settings", **chrome)


def _row(session: Session, token: HubToken) -> dict[str, Any]:
    creator = session.get(User, token.creator_id)
    return {
        "id": token.id,
        "name": token.name,
        "account": token.account,
        "creator_name": creator.name if creator else None,
        "created_at": token.created_at.isoformat(),
    }
