"""Talking to a model in the browser. What is said stays in the page: the platform keeps nothing of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from osmosis_platform.accounts import sessions
from osmosis_platform.errors import PlatformError
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.inference.api import complete
from osmosis_platform.inference.catalogue import targets
from osmosis_platform.inference.wire import error_object
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import SignedInDep, ViewerDep

router = APIRouter(include_in_schema=False)


class Chat(BaseModel):
    """What the page sends: the whole conversation so far, and how to go on."""

    model_config = ConfigDict(extra="forbid")
    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=1000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, le=1_048_576)
    seed: int | None = None


@router.get("/{workspace}/playground")
def playground_page(request: Request, platform: PlatformDep, viewer: ViewerDep, model: str = "") -> Response:
    """The page; `model` is the one to begin with."""
    with platform.database.read() as session:
        names = [target.public for target, _ in targets(session, viewer.workspace_id)]
    data = {"models": names, "model": model, "serves": platform.settings.serve_models}
    path = f"/{viewer.workspace}/playground"
    return render(request, "playground.html", data, viewer=viewer, room="playground", path=path)


@router.post("/{workspace}/playground/chat")
async def chat(
    platform: PlatformDep,
    viewer: ViewerDep,
    person: SignedInDep,
    body: Chat,
    x_csrf_token: Annotated[str, Header()] = "",
) -> Response:
    """One answer as server-sent events, by the same way as programs with an API key."""
    sessions.check_csrf(person.session, x_csrf_token)
    asked = body.model_dump(exclude_none=True)
    try:
        return await complete(
            platform,
            viewer.workspace_id,
            {**asked, "stream": True, "stream_options": {"include_usage": True}},
        )
    except PlatformError as error:
        return error_object(error)
