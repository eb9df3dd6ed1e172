"""Delivery of callbacks over one pooled client."""

import asyncio
import json as jsonlib
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from osmosis_ai.rollout.utils.plain_http import PlainHttpPool

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_BYTES_PER_SEC = 1_000_000

_ENCODER = jsonlib.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})

_client: httpx.AsyncClient | None = None
_client_loop: asyncio.AbstractEventLoop | None = None


class CallbackClient(httpx.AsyncClient):
    """An httpx client whose JSON posts to ``http://`` addresses take a shorter way.

    The timeout is for a whole exchange; it grows by a second for each megabyte sent. A proxy from the environment never serves
    this machine's own addresses.
    """

    def __init__(self, *, timeout_sec: float) -> None:
        super().__init__(timeout=timeout_sec, mounts=dict.fromkeys(("all://127.0.0.1", "all://localhost")))
        self._timeout_sec = timeout_sec
        self._plain = PlainHttpPool()
        self._proxied = bool(urllib.request.getproxies().keys() & {"http", "all"})

    async def post(
        self, url: httpx.URL | str, *, json: Any = None, headers: Any = None, **options: Any
    ) -> httpx.Response:
        """Post JSON. Raises :class:`ValueError` or :class:`TypeError` when the value has no JSON form."""
        content = _ENCODER.encode(json).encode()
        timeout_sec = self._timeout_sec + len(content) / _BYTES_PER_SEC
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        split = urlsplit(str(url))
        if not options and self._is_plain(split):
            return await self._plain.post(split, all_headers, content, timeout_sec=timeout_sec)
        try:
            async with asyncio.timeout(timeout_sec):
                return await super().post(url, content=content, headers=all_headers, **options)
        except TimeoutError as error:
            raise httpx.ReadTimeout(
                f"no complete answer from {split.hostname} in {timeout_sec:g} s"
            ) from error

    def _is_plain(self, url: SplitResult) -> bool:
        direct = not self._proxied or url.hostname in _LOOPBACK
        return url.scheme == "http" and bool(url.hostname) and "@" not in url.netloc and direct

    async def aclose(self) -> None:
        """Close every connection."""
        await self._plain.aclose()
        await super().aclose()


def get_shared_client(timeout_seconds: float = 10.0) -> httpx.AsyncClient:
    """The pooled client of this process, made on first use; later timeouts are ignored until it is closed.

    Its connections belong to the event loop that opened them, so another loop gets a new client.
    """
    global _client, _client_loop
    loop = _running_loop()
    foreign = loop is not None and _client_loop is not None and loop is not _client_loop
    if _client is None or _client.is_closed or foreign:
        _client = CallbackClient(timeout_sec=timeout_seconds)
        _client_loop = loop
    elif _client_loop is None:
        _client_loop = loop
    return _client


async def close_shared_client() -> None:
    """Close the pooled client; the next use makes a new one."""
    global _client, _client_loop
    client, _client, _client_loop = _client, None, None
    if client is not None:
        await client.aclose()


async def post_json_with_retry(
    *,
    url: str,
    payload: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    max_attempts: int = 5,
    base_delay_seconds: float = 0.5,
    max_delay_seconds: float = 8.0,
    timeout_seconds: float = 10.0,
) -> httpx.Response:
    """Post the payload until a 2xx answer, at most ``max_attempts`` times, with doubling delays and no jitter.

    Transport errors and the statuses 429, 500, 502, 503 and 504 are tried again; redirects are not followed.

    Raises:
        ValueError: when ``max_attempts`` is below 1, or the payload has no JSON form.
        httpx.HTTPStatusError: for any other status, or the last one of the retried.
        httpx.RequestError: for the last transport error.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts must be >= 1, got {max_attempts}")
    client = get_shared_client(timeout_seconds)
    attempt = 1
    while True:
        try:
            response = await client.post(url, json=payload, headers=headers)
            response.raise_for_status()
            return response
        except httpx.HTTPError as error:
            if attempt >= max_attempts or not _is_retryable_exception(error):
                raise
        await asyncio.sleep(min(base_delay_seconds * 2 ** (attempt - 1), max_delay_seconds))
        attempt += 1


def _is_retryable_exception(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _RETRIED_STATUSES
    return isinstance(error, httpx.RequestError)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
