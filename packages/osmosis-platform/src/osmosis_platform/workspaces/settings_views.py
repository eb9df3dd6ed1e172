"""The room "settings": its pages lie below it."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.web.viewer import ViewerDep

router = APIRouter(include_in_schema=False)


@router.get("/{workspace}/settings")
def settings_page(viewer: ViewerDep) -> Response:
    """To the first page of the room."""
    return RedirectResponse(f"/{viewer.workspace}/settings/{viewer.settings[0][0]}", status_code=303)
