"""The calls a controller makes to a rollout server, for every generation of the protocol."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from osmosis_ai.errors import OsmosisError
from osmosis_ai.rollout.types.protocol import POLLING_LEASE_HEADER
from osmosis_ai.rollout.utils.strict_json import MAX_BODY_BYTES, StrictJsonError, decode_strict

INSTANCE_HEADER = "x-osmosis-rollout-instance-id"

ROLLOUT_SERVER_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
# The whole exchange of an admission or a cancellation, whatever trickles in meanwhile.
_EXCHANGE_SEC = 300.0
_SHORT_TIMEOUT = httpx.Timeout(5.0)
_FRAMING = (b"content-encoding", b"content-length", b"transfer-encoding")
# After these the server has not heard of the request.
NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout)
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


def encode_rollout(body: Mapping[str, Any]) -> bytes:
    """The body of an admission, in ASCII: text of a dataset may hold what UTF-8 cannot carry.

    Raises:
        ValueError: when it has no JSON form.
    """
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"rollout {body['rollout_id']!r} cannot be sent: its messages, metadata or extra_fields hold what JSON cannot "
            f"carry ({error})"
        ) from error


class RolloutServerClient:
    """Talks to the rollout server at ``base_url``; ``api_key`` is the server's own key, if it asks for one."""

    def __init__(self, base_url: str, http: httpx.AsyncClient, *, api_key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = http
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    async def admit(self, body: bytes, *, hide: Sequence[str] = ()) -> Lease | None:
        """Post a rollout; wait while the server has no capacity. Returns a lease if the result has to be polled.

        The post is never repeated after a transport error: its outcome is unknown. ``hide`` lists keys that no error may
        repeat. Raises :class:`httpx.TransportError` and :class:`RolloutProtocolError`.
        """
        while True:
            response = await self._ask("POST", "/rollout", body)
            if response.status_code != 429:
                break
            await asyncio.sleep(_retry_after_seconds(response))
        if response.status_code not in (200, 202):
            raise _unexpected("POST /rollout", response, hide)
        return _lease_of(response)

    async def result(self, rollout_id: str, lease: Lease) -> dict[str, Any]:
        """Poll until the rollout has a terminal status; its result object.

        Transport errors and gateway errors are retried within the lease. Raises like :meth:`admit`.
        """
        url = f"/rollout/{quote(rollout_id, safe='')}/result"
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
                response = await self._ask(
                    "GET", url, headers={POLLING_LEASE_HEADER: lease.token}, timeout=timeout
                )
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
            ids = json.dumps({"ids": list(rollout_ids)}).encode()
            response = await self._ask("POST", "/rollout/cancel", ids, timeout=_SHORT_TIMEOUT)
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
        response = await self._ask("GET", "/health", timeout=_SHORT_TIMEOUT)
        if response.status_code != 200:
            raise _unexpected("GET /health", response)
        health = _json_object(response)
        instance = health.get("instance_id") or response.headers.get(INSTANCE_HEADER)
        return health, instance if isinstance(instance, str) else None

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout = ROLLOUT_SERVER_TIMEOUT,
    ) -> httpx.Response:
        """One exchange with a server that runs code of others: what it answers is bounded in size and in time."""
        all_headers = {"Accept-Encoding": "identity", **self._headers, **(headers or {})}
        if body is not None:
            all_headers["Content-Type"] = "application/json"
        url = f"{self.base_url}{path}"
        try:
            async with (
                asyncio.timeout(_EXCHANGE_SEC),
                self._http.stream(
                    method, url, content=body, headers=all_headers, timeout=timeout
                ) as response,
            ):
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > MAX_BODY_BYTES:
                        raise RolloutProtocolError(
                            f"the rollout server answered {method} {path} with more than {MAX_BODY_BYTES} bytes",
                            status_code=response.status_code,
                        )
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"{url} did not finish its answer within {_EXCHANGE_SEC:g} s") from error
        return httpx.Response(
            response.status_code,
            headers=[item for item in response.headers.raw if item[0].lower() not in _FRAMING],
            content=bytes(content),
            request=response.request,
        )


def _lease_of(response: httpx.Response) -> Lease | None:
    try:
        reply = decode_strict(response.content)
    except StrictJsonError:
        return None
    token = reply.get("polling_lease_token") if isinstance(reply, dict) else None
    if not isinstance(token, str) or not token:
        return None
    return Lease(
        token,
        _seconds(reply.get("result_wait_timeout_sec"), default=30.0),
        _seconds(reply.get("polling_lease_timeout_sec"), default=120.0),
    )


def _seconds(value: object, *, default: float) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 86_400
    return float(value) if usable else default  # type: ignore[arg-type]


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        value = decode_strict(response.content)
    except StrictJsonError:
        value = None
    if not isinstance(value, dict):
        raise RolloutProtocolError(
            f"{response.request.url} answered something that is not a JSON object",
            status_code=response.status_code,
        )
    return value


def _unexpected(call: str, response: httpx.Response, hide: Sequence[str] = ()) -> RolloutProtocolError:
    detail = _detail_of(response)
    for secret in hide:
        detail = detail.replace(secret, "[redacted]")
    return RolloutProtocolError(
        f"the rollout server answered {call} with {response.status_code}: {detail[:500] or 'no body'}",
        status_code=response.status_code,
    )


def _detail_of(response: httpx.Response) -> str:
    """Why the server refused. The request that a validation error repeats is left out: it holds the keys."""
    try:
        detail = decode_strict(response.content).get("detail")
    except (StrictJsonError, AttributeError):
        return response.text.strip()
    if not isinstance(detail, list):
        return str(detail)
    problems = [problem for problem in detail if isinstance(problem, dict)]
    return "; ".join(
        f"{'.'.join(map(str, problem.get('loc') or ()))}: {problem.get('msg')}" for problem in problems
    )
