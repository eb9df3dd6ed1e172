"""Reading a stream of server-sent events (HTML standard, section 9.2)."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx

from osmosis_ai.platform.api.client import PlatformClient
from osmosis_ai.platform.errors import PlatformError

# Heartbeat comments come more often than this.
_SILENCE_S = 65.0


def stream_events(client: PlatformClient, path: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream as they arrive, until the platform closes it. Other data and comments are skipped.

    Raises:
        PlatformError: refused before the first event, or the stream fell silent or broke off.
    """
    headers = {**client.headers(), "Accept": "text/event-stream"}
    timeout = httpx.Timeout(30.0, read=_SILENCE_S)
    try:
        with (
            httpx.Client(timeout=timeout, trust_env=not client.is_local) as http,
            http.stream("GET", client.address(path), params=dict(params), headers=headers) as response,
        ):
            if response.is_error:
                response.read()
                client.raise_for(response.status_code, response.content)
            yield from _objects(response.iter_lines())
    except httpx.HTTPError as error:
        raise PlatformError(
            f"Connection error: the stream from {client.base_url} broke off ({type(error).__name__})."
        ) from error


def _objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            try:
                document = json.loads("\n".join(data))
            except ValueError:
                document = None
            data = []
            if isinstance(document, dict):
                yield document
