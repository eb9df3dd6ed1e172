"""POST over plain HTTP/1.1 connections that are kept between requests.

A rollout server spends most of its own time on callbacks, and httpx takes ten times as long for one as the exchange needs. This
does only what a callback needs: one POST with a body in memory, no redirects, no cookies, no compression, no TLS, no proxy.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, quote

import httpx

MAX_ANSWER_BYTES = 64 * 2**20
_MAX_HEAD_BYTES = 64 * 1024
# Shorter than uvicorn's 5 s: a request must not meet a connection that the server is just closing.
_KEEPALIVE_SEC = 2.0
_MAX_AT_ONCE = 128
_FRAMING = (b"transfer-encoding", b"content-length")
_TARGET_CHARACTERS = "%/?:@!$&'()*+,;=-._~[]"

# By lower-case name; those that came twice are joined.
type _Headers = dict[bytes, bytes]


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    @property
    def usable(self) -> bool:
        fresh = time.monotonic() - self.idle_since < _KEEPALIVE_SEC
        return fresh and not self.reader.at_eof() and not self.writer.is_closing()


class PlainResponse(httpx.Response):
    """An answer of which only status and content are at hand; the rest is made up where somebody asks for it.

    Making all of it takes longer than the whole exchange, and an acknowledgement needs none of it.
    """

    def __init__(self, status_code: int, headers: _Headers, content: bytes, *, url: SplitResult) -> None:
        self.status_code = status_code
        self._read_content = content
        self._made_of: tuple[_Headers, SplitResult] | None = (headers, url)

    @property
    def content(self) -> bytes:
        """The body."""
        return self._read_content

    def raise_for_status(self) -> httpx.Response:
        """The answer itself. Raises :class:`httpx.HTTPStatusError` unless its status is 2xx."""
        return self if self.is_success else super().raise_for_status()

    def __getattr__(self, name: str) -> Any:
        read = self.__dict__.pop("_made_of", None)
        if read is None:
            raise AttributeError(name)
        headers, url = read
        plain = [item for item in headers.items() if item[0] not in _FRAMING]
        request = httpx.Request("POST", url.geturl())
        super().__init__(self.status_code, headers=plain, content=self._read_content, request=request)
        return getattr(self, name)


class PlainHttpPool:
    """Connections of one event loop: up to 128 to each host and port. Further requests wait, outside of their timeout."""

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[str, int], list[_Connection]] = defaultdict(list)
        self._turns: defaultdict[tuple[str, int], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_MAX_AT_ONCE)
        )

    async def post(
        self, url: SplitResult, headers: Mapping[str, str], content: bytes, *, timeout_sec: float
    ) -> httpx.Response:
        """Post the content to an ``http`` URL. ``timeout_sec`` is for the whole exchange.

        Raises:
            httpx.TransportError: of the kind that httpx raises for the same trouble.
        """
        message = _encoded(url, headers, content)
        address = _address(url.netloc)
        connected = False
        try:
            async with self._turns[address], asyncio.timeout(timeout_sec):
                connection = await self._connect(address)
                connected = True
                try:
                    status, answer_headers, answer, reusable = await _exchange(connection, message)
                except BaseException:
                    connection.writer.close()
                    raise
        except TimeoutError as error:
            kind = httpx.ReadTimeout if connected else httpx.ConnectTimeout
            raise kind(f"no answer from {address[0]}:{address[1]} in {timeout_sec:g} s") from error
        except OSError as error:
            kind_of_error = httpx.ReadError if connected else httpx.ConnectError
            raise kind_of_error(f"{address[0]}:{address[1]}: {error}") from error
        self._give_back(address, connection, reusable=reusable)
        return PlainResponse(status, answer_headers, answer, url=url)

    async def aclose(self) -> None:
        """Close the idle connections."""
        idle = [connection for connections in self._idle.values() for connection in connections]
        self._idle.clear()
        for connection in idle:
            connection.writer.close()
        await asyncio.gather(
            *(connection.writer.wait_closed() for connection in idle), return_exceptions=True
        )

    async def _connect(self, address: tuple[str, int]) -> _Connection:
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            connection.writer.close()
        reader, writer = await asyncio.open_connection(*address, limit=_MAX_HEAD_BYTES)
        return _Connection(reader, writer)

    def _give_back(self, address: tuple[str, int], connection: _Connection, *, reusable: bool) -> None:
        idle = self._idle[address]
        if not reusable:
            connection.writer.close()
            return
        connection.idle_since = time.monotonic()
        idle.append(connection)


async def _exchange(connection: _Connection, message: bytes) -> tuple[int, _Headers, bytes, bool]:
    """Status, headers and content of the answer, and whether the connection can take another request."""
    connection.writer.write(message)
    if connection.writer.transport.get_write_buffer_size():
        await connection.writer.drain()
    try:
        while True:
            version, status, headers = await _read_head(connection.reader)
            if status >= 200:  # 1xx: the answer proper is still to come
                break
        content, delimited = await _read_content(connection.reader, status, headers)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise httpx.RemoteProtocolError(
            f"the answer breaks off or is not HTTP: {str(error) or type(error).__name__}"
        ) from error
    kept = headers.get(b"connection", b"").lower() != b"close" and version == b"HTTP/1.1"
    return status, headers, content, kept and delimited


@lru_cache(maxsize=64)
def _address(netloc: str) -> tuple[str, int]:
    url = SplitResult("http", netloc, "", "", "")
    return url.hostname or "", url.port or 80


def _encoded(url: SplitResult, headers: Mapping[str, str], content: bytes) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [
        f"POST {quote(target, safe=_TARGET_CHARACTERS)} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Content-Length: {len(content)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    text = "".join(lines)
    if not text.isascii() or not text.isprintable():
        raise httpx.LocalProtocolError("a header or the host is not printable ASCII")
    return "\r\n".join([*lines, "", ""]).encode() + content


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, int, _Headers]:
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head[:-4].split(b"\r\n")
    version, status = start.split(b" ", 2)[:2]
    if not version.startswith(b"HTTP/1.") or len(status) != 3:
        raise ValueError(f"unexpected status line {start[:80]!r}")
    headers: _Headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise ValueError(f"unexpected header line {line[:80]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = b"%b, %b" % (headers[name], value) if name in headers else value
    return version, int(status), headers


async def _read_content(reader: asyncio.StreamReader, status: int, headers: _Headers) -> tuple[bytes, bool]:
    """The body, and whether it had an end of its own rather than the end of the connection."""
    if status in (204, 304):
        return b"", True
    if headers.get(b"transfer-encoding"):
        return await _read_chunks(reader), True
    if length := headers.get(b"content-length"):
        return await reader.readexactly(_checked(int(length))), True
    content = bytearray()
    while chunk := await reader.read(_MAX_HEAD_BYTES):
        content += chunk
        _checked(len(content))
    return bytes(content), False


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    content = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        _checked(len(content) + size)
        content += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return bytes(content)


def _checked(size: int) -> int:
    if not 0 <= size <= MAX_ANSWER_BYTES:
        raise ValueError(f"a body of {size} bytes; {MAX_ANSWER_BYTES} is the most")
    return size
