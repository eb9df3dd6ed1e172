"""The server's own bearer key."""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from osmosis_ai.rollout.server.request_body import error_response


class BearerKey:
    """Lets only requests with ``Authorization: Bearer <key>`` through, on every route; others get 401."""

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        if not key.strip():
            raise ValueError("api_key must not be blank: leave it out for a server without authentication")
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._admits(scope):
            headers = {"WWW-Authenticate": "Bearer"}
            await error_response(401, "unauthorized", headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        return bool(hmac.compare_digest(key.strip(), self._key)) and scheme.lower() == b"bearer"
