"""``POST /rollout`` without the web framework's layers, which take longer than everything else about it."""

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osmosis_ai.rollout.server.request_body import check_content_type, decode_object
from osmosis_ai.rollout.utils import request_size


class DirectStart:
    """Answers the requests that ``admit`` accepts. All others, also the refused ones, go on to the application as they came.

    So there is one place that decides what a refusal looks like.
    """

    def __init__(self, app: ASGIApp, *, admit: Callable[[dict[str, Any]], bytes]) -> None:
        self._app = app
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _starts_a_rollout(scope):
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        answer = self._answer(scope, read) if await _read_whole_body(receive, read) else None
        if answer is None:
            await self._app(scope, _replaying(read, receive), send)
            return
        length = str(len(answer)).encode()
        headers = [(b"content-length", length), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, scope: Scope, read: list[Message]) -> bytes | None:
        content_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        try:
            check_content_type(content_type.decode("latin-1"))
            return self._admit(decode_object(b"".join(message.get("body", b"") for message in read)))
        except Exception:  # raised again, and answered, in the application
            return None


def _starts_a_rollout(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and scope["path"] == "/rollout"
        and not scope.get("root_path")
    )


async def _read_whole_body(receive: Receive, read: list[Message]) -> bool:
    """Whether the messages of the body, now in ``read``, are all there and not too much."""
    size = 0
    while True:
        message = await receive()
        read.append(message)
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or size > request_size.MAX_BODY_BYTES:
            return False
        if not message.get("more_body", False):
            return True


def _replaying(read: list[Message], receive: Receive) -> Receive:
    messages = iter(read)

    async def replay() -> Message:
        for message in messages:
            return message
        return await receive()

    return replay
