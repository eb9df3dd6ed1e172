"""The cheapest controller that HTTP allows: it posts rollouts and acknowledges callbacks over raw connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

_ACK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'


class CallbackSink:
    """Drives the server at `server_url`. What it spends is not measured; it only has to keep up."""

    def __init__(self, server_url: str) -> None:
        address = urlsplit(server_url)
        self._server = (address.hostname, address.port)
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._connections: set[asyncio.StreamWriter] = set()

    async def run(self, count: int, *, in_flight: int) -> None:
        """Run that many rollouts to their grader callback, `in_flight` at a time."""
        left = iter(range(count))

        async def lane() -> None:
            reader, writer = await asyncio.open_connection(*self._server)
            for _ in left:
                await self._one(reader, writer)
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(lane() for _ in range(in_flight)))

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rollout_id = uuid4().hex
        graded = self._waiting[rollout_id] = asyncio.get_running_loop().create_future()
        body = json.dumps(self._body(rollout_id)).encode()
        head = (
            f"POST /rollout HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        status, _ = await _read_message(reader)
        if b" 202 " not in status:
            raise RuntimeError(f"the server answered {status!r}")
        await graded

    def _body(self, rollout_id: str) -> dict[str, Any]:
        return {
            "rollout_id": rollout_id,
            "initial_messages": [
                {"role": "system", "content": "You multiply numbers."},
                {"role": "user", "content": "What is 6 times 7?"},
            ],
            "label": "42",
            "metadata": {"row": 1},
            "chat_completions_url": f"{self._url}/{rollout_id}",
            "completion_callback_url": f"{self._url}/{rollout_id}/completion",
            "grader_callback_url": f"{self._url}/{rollout_id}/grader",
            "controller_api_key": "callback-key",
            "llm_api_key": "chat-key",
            "agent_timeout_sec": 450.0,
            "grader_timeout_sec": 150.0,
        }

    async def _acknowledge(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                start, _ = await _read_message(reader)
                writer.write(_ACK)
                _, rollout_id, channel = start.split(b" ")[1].decode().split("/")
                if channel == "grader":
                    self._waiting.pop(rollout_id).set_result(None)
        except asyncio.IncompleteReadError:
            self._connections.discard(writer)
            writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Take callbacks on a free loopback port."""
        server = await asyncio.start_server(self._acknowledge, "127.0.0.1", 0, backlog=512)
        self._url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield
            for connection in self._connections:
                connection.close()


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """First line and body of an HTTP message with a content-length."""
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head.split(b"\r\n")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return start, await reader.readexactly(int(value))
    return start, b""
