"""Results of the server's work: a request is taken on at once and its result is asked for until it is there."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from osmosis_trainer.deadline import within
from osmosis_trainer.engines.tinker.errors import RequestLostError, ServerError
from osmosis_trainer.engines.tinker.http import Transport, reason, shown

_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_NOT_READY = frozenset({408, 425})
# The server never heard of the result, or threw it away.
_GONE = frozenset({404, 410})


async def submit(
    transport: Transport, path: str, body: dict[str, Any], *, repeatable: bool
) -> dict[str, Any]:
    """Hand a request in; the answer has the `request_id` of its result.

    Raises RequestLostError when the server does not know the model or session (any more), ServerError when it refuses.
    """
    return accepted(await transport.post(path, body, repeatable=repeatable), path)


def accepted(response: httpx.Response, path: str) -> dict[str, Any]:
    """The JSON of a good answer."""
    if response.status_code in _GONE:
        raise RequestLostError(f"{path}: the server answered {shown(response)}")
    if not response.is_success:
        raise ServerError(f"{path}: the server answered {shown(response)}")
    content: dict[str, Any] = response.json()
    return content


async def result(transport: Transport, request_id: str, what: str, limit_s: float) -> dict[str, Any]:
    """Wait for the result of a request.

    Raises ServerError when the request was wrong, RequestLostError when it failed for a reason of the server or its
    result is gone, DeadlineError after `limit_s` seconds.
    """
    async with within(limit_s, what):
        pause = _PAUSE_S
        while True:
            response = await transport.poll("retrieve_future", {"request_id": request_id})
            if response.status_code not in _NOT_READY:
                content = _finished(response, what)
                if content is not None:
                    return content
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE_S)


def _finished(response: httpx.Response, what: str) -> dict[str, Any] | None:
    if not response.is_success:
        # Some servers report work that failed as an answer with an error status; nobody says whose fault it was.
        raise RequestLostError(f"{what} failed: {shown(response)}")
    content: dict[str, Any] = response.json()
    if content.get("type") == "try_again":
        return None
    if "error" in content:
        kind = ServerError if content.get("category") == "user" else RequestLostError
        raise kind(f"{what} failed: {reason(response)}")
    return content
