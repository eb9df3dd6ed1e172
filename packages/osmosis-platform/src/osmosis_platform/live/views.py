"""The stream that open pages of a workspace listen to."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.live.hub import Change, LiveHub, Stream
from osmosis_platform.web.viewer import SignedInDep, ViewerDep

router = APIRouter(include_in_schema=False)

BEAT_SECONDS = 15.0
MAX_SECONDS = 600


class EventStream(StreamingResponse):
    """A stream that leaves the hub however it ends."""

    def __init__(self, hub: LiveHub, stream: Stream, seconds: float) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_events(stream, seconds), media_type="text/event-stream", headers=headers)
        self._hub, self._stream = hub, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave(self._stream)


@router.get("/{workspace}/events")
async def events(
    platform: PlatformDep,
    viewer: ViewerDep,
    person: SignedInDep,
    seconds: Annotated[float, Query(ge=0, le=MAX_SECONDS)] = MAX_SECONDS,
) -> Response:
    """What changes in the workspace, as server-sent events: `changes` with `[{"kind", "id"}]`, kinds `eval`, `train`, `dataset`.

    An empty list means anything. `ready` begins the stream, `beat` shows that it lives. It ends with the session or the
    membership, and after `seconds`: whoever still looks connects again, and fetches anew what it shows, since nothing is repeated.
    """
    stream = platform.live.join(person.session.id, person.user.id, viewer.workspace_id)
    return EventStream(platform.live, stream, seconds)


async def _events(stream: Stream, seconds: float) -> AsyncIterator[str]:
    end = time.monotonic() + seconds
    yield _event("ready", [])
    while not stream.ended and (left := end - time.monotonic()) > 0:
        changes = await stream.next(min(BEAT_SECONDS, left))
        if changes and not stream.ended:
            yield _event("changes", [] if None in changes else sorted(filter(None, changes)))
        elif not stream.ended:
            yield _event("beat", [])


def _event(name: str, changes: list[Change]) -> str:
    return f"event: {name}\ndata: {json.dumps([change._asdict() for change in changes])}\n\n"
