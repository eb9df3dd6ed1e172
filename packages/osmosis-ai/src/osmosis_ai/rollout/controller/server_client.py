"""The calls a controller makes to a rollout server, for every generation of the protocol."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from osmosis_ai.errors import OsmosisError

LEASE_HEADER = "X-Osmosis-Rollout-Lease"
INSTANCE_HEADER = "x-osmosis-rollout-instance-id"

ROLLOUT_SERVER_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_RETRY_DELAY_START, _RETRY_DELAY_END = 0.1, 8.0


class RolloutProtocolError(OsmosisError):
    """A rollout server answered outside the protocol. ``status_code`` is the HTTP status it sent."""

    default_code = "ROLLOUT_PROTOCOL_ERROR"

    def __init__(self, message: str, *, status_code: int) -> None:
        super().__init__(message, details={"status_code": status_code})
        self.status_code = status_code


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to poll one rollout (generation C). Times are seconds; each successful poll renews the lease."""

    token: str
    wait_sec: float = 30.0
    timeout_sec: float = 120.0


def _retry_after_seconds(response: httpx.Response, default: float = 1.0) -> float:
    """Seconds to wait before the next admission, between 0.05 and 60. HTTP dates and nonsense count as ``default``."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return default
    return min(max(seconds, 0.05), 60.0) if math.isfinite(seconds) else default


class RolloutServerClient:
    """Talks to the rollout server at ``base_url``."""

    def __init__(self, base_url: str, http: httpx.AsyncClient) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = http

    async def admit(self, body: dict[str, Any]) -> Lease | None:
        """Post a rollout; wait while the server has no capacity. Returns a lease if the result has to be polled.

        The post is never repeated after a transport error: its outcome is unknown. Raises :class:`httpx.TransportError`
        and :class:`RolloutProtocolError`.
        """
        while True:
            response = await self._http.post(f"{self.base_url}/rollout", json=body)
            if response.status_code != 429:
                break
            await asyncio.sleep(_retry_after_seconds(response))
        if response.status_code not in (200, 202):
            raise _unexpected("POST /rollout", response)
        return _lease_of(response)

    async def result(self, rollout_id: str, lease: Lease) -> dict[str, Any]:
        """Poll until the rollout has a terminal status; its result object.

        Transport errors and gateway errors are retried within the lease. Raises like :meth:`admit`.
        """
        url = f"{self.base_url}/rollout/{quote(rollout_id, safe='')}/result"
        while True:
            response = await self._poll(url, lease)
            if response.status_code != 200:
                raise _unexpected("GET /rollout/{id}/result", response)
            result = _json_object(response)
            if result.get("status") not in ("queued", "running", "grading", "pending"):
                return result
            # A server that answers "running" at once must not be asked in a tight loop.
            await asyncio.sleep(0.05)

    async def _poll(self, url: str, lease: Lease) -> httpx.Response:
        """One answer of the server, which waits up to ``lease.wait_sec``; trouble is sat out until the lease is over."""
        timeout = httpx.Timeout(lease.wait_sec + 15.0, connect=10.0)
        loop = asyncio.get_running_loop()
        give_up_at, delay = loop.time() + lease.timeout_sec, _RETRY_DELAY_START
        while True:
            try:
                response = await self._http.get(url, headers={LEASE_HEADER: lease.token}, timeout=timeout)
            except httpx.TransportError:
                if loop.time() + delay > give_up_at:
                    raise
            else:
                if response.status_code not in (502, 503, 504) or loop.time() + delay > give_up_at:
                    return response
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RETRY_DELAY_END)

    async def cancel(self, rollout_ids: Sequence[str]) -> dict[str, str]:
        """Ask the server to cancel rollouts, best effort: any failure is an empty answer."""
        try:
            response = await self._http.post(
                f"{self.base_url}/rollout/cancel", json={"ids": list(rollout_ids)}, timeout=5.0
            )
        except httpx.HTTPError:
            return {}
        if response.status_code >= 400:
            return {}
        try:
            dispositions = _json_object(response).get("dispositions")
        except RolloutProtocolError:
            return {}
        return dispositions if isinstance(dispositions, dict) else {}

    async def health(self) -> tuple[dict[str, Any], str | None]:
        """The health object and the identity of the server process, as far as it tells one."""
        response = await self._http.get(f"{self.base_url}/health", timeout=5.0)
        if response.status_code != 200:
            raise _unexpected("GET /health", response)
        health = _json_object(response)
        instance = health.get("instance_id") or response.headers.get(INSTANCE_HEADER)
        return health, instance if isinstance(instance, str) else None


def _lease_of(response: httpx.Response) -> Lease | None:
    try:
        reply = response.json()
    except ValueError:
        return None
    token = reply.get("polling_lease_token") if isinstance(reply, dict) else None
    if not isinstance(token, str) or not token:
        return None
    wait, timeout = reply.get("result_wait_timeout_sec"), reply.get("polling_lease_timeout_sec")
    return Lease(
        token,
        float(wait) if isinstance(wait, int | float) else 30.0,
        float(timeout) if isinstance(timeout, int | float) else 120.0,
    )


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RolloutProtocolError(
            f"{response.request.url} answered something that is not a JSON object",
            status_code=response.status_code,
        )
    return value


def _unexpected(call: str, response: httpx.Response) -> RolloutProtocolError:
    detail = response.text[:500].strip() or "no body"
    return RolloutProtocolError(
        f"the rollout server answered {call} with {response.status_code}: {detail}",
        status_code=response.status_code,
    )
