"""Callbacks over real sockets, against controllers that answer in every way HTTP allows, and in some it does not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.utils import plain_http
from osmosis_ai.rollout.utils.http import CallbackClient, get_shared_client, post_json_with_retry

OK = b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"ok":true}'


class RawServer:
    """Answers each request with the next of the given bytes (the last one again and again), or closes on None."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                self.requests.append(head + await reader.readexactly(length))
                await self.hold.wait()
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"content-length" not in answer and b"chunked" not in answer and b" 204" not in answer:
                    break


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def started(*answers: bytes | None) -> tuple[RawServer, str]:
            raw = RawServer(*answers)
            tasks: set[asyncio.Task[None]] = set()

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(raw.handle(reader, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            server = await asyncio.start_server(connected, "127.0.0.1", 0)

            async def stop() -> None:
                server.close()
                for task in list(tasks):
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await server.wait_closed()

            stack.push_async_callback(stop)
            return raw, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield started


@pytest.fixture
async def client() -> AsyncIterator[CallbackClient]:
    client = CallbackClient(timeout_sec=10)
    yield client
    await client.aclose()


@pytest.mark.parametrize(
    ("answer", "status", "content", "connections"),
    [
        (OK, 200, b'{"ok":true}', 1),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b'{"ok":true}', 1),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n",
            200,
            b"abcde",
            1,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end", 2),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", 2),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", 2),
        (b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n", 302, b"", 1),
    ],
)
async def test_every_kind_of_answer_is_read(
    answer: bytes, status: int, content: bytes, connections: int, start: Any, client: CallbackClient
) -> None:
    raw, url = await start(answer)
    for _ in range(2):
        response = await client.post(f"{url}/a%2Fb?c=d", json={"x": 1}, headers={"Authorization": "Bearer k"})
        assert (response.status_code, response.content) == (status, content)
    assert raw.connections == connections
    head, _, body = raw.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /a%2Fb?c=d HTTP/1.1"
    assert b"Host: " + url.removeprefix("http://").encode() in lines
    assert b"Authorization: Bearer k" in lines
    assert body == b'{"x":1}'


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_an_answer_that_is_not_http_is_a_transport_error(
    answer: bytes | None, start: Any, client: CallbackClient
) -> None:
    _, url = await start(answer)
    with pytest.raises(httpx.TransportError):
        await client.post(url, json={})


async def test_an_answer_without_end_is_cut_off(
    start: Any, client: CallbackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_http, "MAX_ANSWER_BYTES", 1000)
    _, url = await start(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000)
    with pytest.raises(httpx.RemoteProtocolError, match="1000 is the most"):
        await client.post(url, json={})


async def test_a_controller_that_hangs_or_drips_costs_one_timeout(start: Any) -> None:
    client = CallbackClient(timeout_sec=0.05)
    raw, url = await start(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nd")
    with pytest.raises(httpx.ReadTimeout, match=r"no answer from 127\.0\.0\.1:\d+ in 0\.05"):
        await client.post(url, json={})
    raw.hold.clear()
    with pytest.raises(httpx.ReadTimeout):
        await client.post(url, json={})
    await client.aclose()


async def test_hanging_controllers_are_tried_five_times(start: Any) -> None:
    raw, url = await start(OK)
    raw.hold.clear()
    client = get_shared_client(0.02)
    with pytest.raises(httpx.ReadTimeout):
        await post_json_with_retry(url=url, payload={}, base_delay_seconds=0)
    assert raw.connections == 5
    await client.aclose()


async def test_keys_cannot_smuggle_headers(start: Any, client: CallbackClient) -> None:
    raw, url = await start(OK)
    for key in ("k\r\nX-Admin: 1", "k\x00", "schl\u00fcssel"):
        with pytest.raises(httpx.LocalProtocolError):
            await client.post(url, json={}, headers={"Authorization": f"Bearer {key}"})
    assert raw.requests == []


async def test_refused_and_unusable_addresses(client: CallbackClient, unused_port: int) -> None:
    with pytest.raises(httpx.ConnectError, match=str(unused_port)):
        await client.post(f"http://127.0.0.1:{unused_port}/", json={})
    for url in ("nowhere", "ftp://x/"):
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.post(url, json={})
    with pytest.raises(ValueError, match="not JSON compliant"):
        await client.post("http://127.0.0.1:9/", json={"x": float("nan")})


async def test_concurrent_posts_have_connections_of_their_own(start: Any, client: CallbackClient) -> None:
    raw, url = await start(OK)
    raw.hold.clear()
    posts = [asyncio.create_task(client.post(url, json={})) for _ in range(20)]
    async with asyncio.timeout(20):
        while len(raw.requests) < 20:  # noqa: ASYNC110 - the requests arrive in the same loop
            await asyncio.sleep(0.001)
    raw.hold.set()
    assert {response.status_code for response in await asyncio.gather(*posts)} == {200}
    await client.post(url, json={})
    assert raw.connections == 20


async def test_a_proxy_is_used_except_for_this_machine(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    target, target_url = await start(OK)
    proxy, proxy_url = await start(OK)
    monkeypatch.setenv("http_proxy", proxy_url)
    client = CallbackClient(timeout_sec=10)
    await client.post(target_url, json={})
    assert (len(target.requests), len(proxy.requests)) == (1, 0)
    await client.post("http://controller.test/x", json={})
    assert proxy.requests[0].startswith(b"POST http://controller.test/x HTTP/1.1")
    await client.aclose()
