"""HTTP connections for a thousand requests at once.

httpx's own pool looks at every connection for every request; with hundreds of requests in flight that becomes quadratic and
takes longer than the requests. Here each request in flight has a lane of its own, a transport with one connection, and an idle
lane is found in constant time.
"""

import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import cast

import httpx

_IDLE_LANES = 256
# Shorter than uvicorn's 5 s: a request must not meet a connection that the server is just closing.
_KEEPALIVE_SEC = 2.0


@cache
def _ssl_context() -> ssl.SSLContext:
    """One context for the process: reading the certificates takes longer than a rollout's requests."""
    return ssl.create_default_context()


class LaneTransport(httpx.AsyncBaseTransport):
    """A transport without a limit on concurrent requests. Idle connections are kept for two seconds."""

    def __init__(self) -> None:
        self._ssl = _ssl_context()
        self._limits = httpx.Limits(max_connections=1, keepalive_expiry=_KEEPALIVE_SEC)
        self._lanes: set[httpx.AsyncHTTPTransport] = set()
        self._idle: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request on an idle lane, or on a new one."""
        lane = self._idle.pop() if self._idle else self._new_lane()
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            # A request that was cut off leaves its connection, and with it the lane, in an unknown state.
            await self._close(lane)
            raise
        response.stream = _LaneStream(cast(httpx.AsyncByteStream, response.stream), self, lane)
        return response

    def _new_lane(self) -> httpx.AsyncHTTPTransport:
        lane = httpx.AsyncHTTPTransport(verify=self._ssl, limits=self._limits, trust_env=False)
        self._lanes.add(lane)
        return lane

    async def _give_back(self, lane: httpx.AsyncHTTPTransport) -> None:
        if len(self._idle) < _IDLE_LANES:
            self._idle.append(lane)
            return
        await self._close(lane)

    async def _close(self, lane: httpx.AsyncHTTPTransport) -> None:
        self._lanes.discard(lane)
        await lane.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        lanes, self._lanes = self._lanes, set()
        self._idle.clear()
        for lane in lanes:
            await lane.aclose()


class _LaneStream(httpx.AsyncByteStream):
    """A response body that gives its lane back when it is closed."""

    def __init__(
        self, body: httpx.AsyncByteStream, transport: LaneTransport, lane: httpx.AsyncHTTPTransport
    ) -> None:
        self._body = body
        self._transport = transport
        self._lane: httpx.AsyncHTTPTransport | None = lane
        self._complete = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield chunk
        self._complete = True

    async def aclose(self) -> None:
        lane, self._lane = self._lane, None
        if lane is None:
            return
        try:
            await self._body.aclose()
        except BaseException:
            await self._transport._close(lane)
            raise
        if self._complete:
            await self._transport._give_back(lane)
        else:
            await self._transport._close(lane)


def make_http_client(timeout: httpx.Timeout) -> httpx.AsyncClient:
    """A client over :class:`LaneTransport`. Proxies of the environment are not used: the servers are on this machine."""
    return httpx.AsyncClient(transport=LaneTransport(), timeout=timeout, trust_env=False)
