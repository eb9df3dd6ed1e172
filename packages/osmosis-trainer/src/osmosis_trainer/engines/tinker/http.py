"""One HTTP exchange with the server: retries where they are harmless, a clear error everywhere else."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from urllib.parse import urlsplit

import httpx

from osmosis_trainer.engines.tinker.errors import RequestLostError, ServerError

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_CONNECTIONS = httpx.Limits(max_connections=256, max_keepalive_connections=64)
# Said before any work was taken on: trying again cannot do it twice.
_REFUSED = frozenset({429, 503})
_BROKEN = frozenset({500, 502, 504})
# A server that fails this often in a row at one request will not do it at all.
_FAILURES = 6
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_SHOWN = 300


class Transport:
    """Sends JSON to one server. `patience_s` bounds how long it may be away."""

    def __init__(self, url: str, api_key: str | None, patience_s: float) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._http = httpx.AsyncClient(
            headers={"X-API-Key": api_key} if api_key else {},
            timeout=_TIMEOUT,
            limits=_CONNECTIONS,
            trust_env=urlsplit(self.url).hostname not in _LOOPBACK,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def post(
        self, path: str, body: dict[str, Any], *, repeatable: bool = True, patience_s: float | None = None
    ) -> httpx.Response:
        """POST `body` to `/api/v1/<path>` and return the answer, whatever its status below 500 (but never 429).

        A request that is not `repeatable` is sent again only when the server surely has not taken it on; otherwise
        RequestLostError is raised. ServerError: the server was away for longer than the patience.
        """
        return await self.request(
            "POST", f"/api/v1/{path}", json=body, repeatable=repeatable, patience_s=patience_s
        )

    async def poll(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Like `post`, for a question that the server may hold for long: 408 when it did."""
        return await self.request("POST", f"/api/v1/{path}", json=body, polling=True)

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: dict[str, Any] | None = None,
        repeatable: bool = True,
        patience_s: float | None = None,
        polling: bool = False,
    ) -> httpx.Response:
        """Like `post`, for any method; `path` is below the server's address, or an absolute address of the same server."""
        address = path if path.startswith(("http://", "https://")) else self.url + path
        deadline = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        pause, failures = _FIRST_PAUSE_S, 0
        while True:
            wait_s = pause
            try:
                response = await self._http.request(method, address, json=json)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                problem = f"cannot be reached ({type(error).__name__})"
            except httpx.TransportError as error:
                if polling and isinstance(error, httpx.ReadTimeout):
                    return httpx.Response(408)  # the server holds the question until it has an answer
                problem = f"broke the connection ({type(error).__name__})"
                if not repeatable:
                    raise RequestLostError(
                        f"the server at {self.url} {problem} during {method} {path}"
                    ) from error
            except httpx.InvalidURL as error:
                raise ServerError(f"{self.url} is no address of a server: {error}") from error
            else:
                if response.status_code not in _REFUSED | _BROKEN:
                    return response
                problem = f"answered {shown(response)}"
                failures += response.status_code in _BROKEN
                if failures == _FAILURES or (failures and not repeatable):
                    raise RequestLostError(f"the server at {self.url} {problem} to {method} {path}")
                wait_s = max(pause, _retry_after(response))
            if time.monotonic() + wait_s > deadline:
                raise ServerError(
                    f"the server at {self.url} {problem} to {method} {path}; gave up trying again"
                )
            if pause == _FIRST_PAUSE_S:
                logger.warning("the server at %s %s; trying again", self.url, problem)
            await asyncio.sleep(wait_s)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def shown(response: httpx.Response) -> str:
    """Status and reason of an answer, short enough for a log."""
    return f"{response.status_code}: {reason(response)[:_SHOWN]}"


def reason(response: httpx.Response) -> str:
    """What the server says is wrong: the `detail` or `error` of its JSON, else the text."""
    try:
        content = response.json()
    except ValueError:
        return response.text.strip()
    if isinstance(content, dict):
        return str(content.get("error") or content.get("detail") or content)
    return str(content)


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(float(response.headers.get("Retry-After", 0)), _LONGEST_PAUSE_S)
    except ValueError:
        return 0.0
