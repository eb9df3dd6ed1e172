"""A worker's line to the platform: ordered events, blobs, and the wish to stop."""

import asyncio
import contextlib
import hashlib
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self
from uuid import uuid4

import httpx

from osmosis_ai.errors import OsmosisError

logger = logging.getLogger(__name__)

HEARTBEAT_SEC = 2.0
FLUSH_SEC = 0.2
GIVE_UP_SEC = 120.0

_MAX_BATCH_EVENTS = 500
_BACKOFF_START, _BACKOFF_END = 0.1, 5.0
_PARALLEL_BLOBS = 4
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_BLOB_TIMEOUT = httpx.Timeout(300.0, connect=5.0)

LogLevel = Literal["info", "warning", "error"]


class RunApiError(OsmosisError):
    """The platform refused a call of the worker; repeating it would not help."""

    default_code = "RUN_API_REFUSED"


class PlatformUnreachableError(RunApiError):
    """The platform has not answered for two minutes."""

    default_code = "PLATFORM_UNREACHABLE"


@dataclass(slots=True, eq=False)
class _Queued:
    event: dict[str, Any]
    acknowledged: asyncio.Future[None]


class RunClient:
    """Sends the events of one run in order, in batches, until the platform has acknowledged them.

    An async context manager; leaving it normally flushes. A batch leaves at most 0.2 s after its first event, a heartbeat
    every 2 s. While the platform does not answer, events wait in memory; after two minutes the client is lost:
    every waiting and later call raises, and ``on_lost`` is called once.
    """

    def __init__(
        self,
        *,
        api_url: str,
        run_id: str,
        token: str,
        on_lost: Callable[[RunApiError], None] | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._run_url = f"{api_url.rstrip('/')}/api/runs/{run_id}"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._on_lost = on_lost
        self._http = http or httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False)
        self._owns_http = http is None
        self._queue: deque[_Queued] = deque()
        self._in_flight: list[_Queued] = []
        self._wake = asyncio.Event()
        self._urgent = False
        self._lost: RunApiError | None = None
        self._sender: asyncio.Task[None] | None = None
        self._blob_slots = asyncio.Semaphore(_PARALLEL_BLOBS)
        self._stored: set[str] = set()
        self.stop_requested = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_forever())
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *rest: object) -> None:
        try:
            if exc_type is None:
                await self.flush()
        finally:
            if self._sender is not None:
                self._sender.cancel()
                await asyncio.gather(self._sender, return_exceptions=True)
            if self._owns_http:
                await self._http.aclose()

    def log(
        self,
        message: str,
        *,
        level: LogLevel = "info",
        step: str = "init",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a line to the run log that users read."""
        event: dict[str, Any] = {
            "type": "log",
            "id": str(uuid4()),
            "timestamp": _now(),
            "level": level,
            "step": step,
            "message": message,
        }
        if details:
            event["details"] = dict(details)
        self._enqueue(event)

    def progress(self, **fields: Any) -> None:
        """Say how far the run is; only the latest unsent one is kept."""
        event = {"type": "progress", **{key: value for key, value in fields.items() if value is not None}}
        last = self._queue[-1] if self._queue else None
        if last is not None and last.event["type"] == "progress":
            last.event |= event
            return
        self._enqueue(event)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Add points to the metric charts; values are finite."""
        self._enqueue({"type": "metrics", "step": step, "timestamp": _now(), "values": dict(values)})

    def sample(self, **fields: Any) -> None:
        """Record a training trajectory (``step``, ``row_index``, ``sample_index``, ``rollout_id``, ``blob``, ...)."""
        self._enqueue({"type": "sample", **_present(fields)})

    async def attempt(self, **fields: Any) -> None:
        """Record a finished evaluation attempt. Returns when the platform has committed it: only then is it finished."""
        await self._commit({"type": "attempt", **_present(fields)})

    async def checkpoint(self, **fields: Any) -> None:
        """Record a checkpoint (``step``, ``blob``, ``path``, ``final``, ``reward``). Returns when it is committed."""
        await self._commit({"type": "checkpoint", **_present(fields)})

    async def failed(self, reason: str, error_type: str) -> None:
        """Say in one sentence why the run failed. Returns when it is committed."""
        await self._commit({"type": "failed", "reason": reason, "error_type": error_type})

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged."""
        waiting = [queued.acknowledged for queued in (*self._in_flight, *self._queue)]
        self._hurry()
        for acknowledged in waiting:
            await asyncio.shield(acknowledged)
        if self._lost is not None:
            raise self._lost

    async def put_blob(self, content: bytes) -> str:
        """Store bytes and return their SHA-256; storing the same bytes again sends nothing."""
        digest = await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())
        if digest not in self._stored:
            async with self._blob_slots:
                await self._call(
                    "PUT",
                    f"/blobs/{digest}",
                    content=content,
                    headers={"Content-Type": "application/octet-stream"},
                    timeout=_BLOB_TIMEOUT,
                )
            self._stored.add(digest)
        return digest

    async def finished_attempts(self, *, page: int = 1000) -> AsyncIterator[dict[str, Any]]:
        """The evaluation attempts that the platform has committed, from earlier lives of this worker."""
        after: int | None = None
        while True:
            params = {"limit": page} if after is None else {"limit": page, "after": after}
            answer = await self._call("GET", "/attempts", params=params)
            for attempt in answer["attempts"]:
                yield attempt
            after = answer.get("next_after")
            if after is None:
                return

    async def _commit(self, event: dict[str, Any]) -> None:
        queued = self._enqueue(event)
        self._hurry()
        await asyncio.shield(queued.acknowledged)

    def _enqueue(self, event: dict[str, Any]) -> _Queued:
        if self._lost is not None:
            raise self._lost
        # Whatever cannot be sent is the caller's mistake, and said to the caller.
        json.dumps(event, allow_nan=False)
        acknowledged = asyncio.get_running_loop().create_future()
        # Most events have nobody who waits for them; their failure is raised by flush.
        acknowledged.add_done_callback(lambda future: future.cancelled() or future.exception())
        queued = _Queued(event, acknowledged)
        self._queue.append(queued)
        self._wake.set()
        return queued

    def _hurry(self) -> None:
        self._urgent = True
        self._wake.set()

    async def _send_forever(self) -> None:
        try:
            while True:
                await self._until_due()
                while self._queue and len(self._in_flight) < _MAX_BATCH_EVENTS:
                    self._in_flight.append(self._queue.popleft())
                events = [queued.event for queued in self._in_flight]
                # Model output may hold half of a surrogate pair, which has no place in UTF-8.
                body = json.dumps({"events": events}, ensure_ascii=False).encode("utf-8", "replace")
                answer = await self._call("POST", "/events", content=body)
                for queued in self._in_flight:
                    queued.acknowledged.set_result(None)
                self._in_flight.clear()
                if answer.get("stop_requested"):
                    self.stop_requested.set()
        except RunApiError as error:
            self._lose(error)
        except Exception as error:
            logger.exception("sending events failed")
            self._lose(RunApiError(f"sending events failed: {error!r}"))

    async def _until_due(self) -> None:
        """Sleep until there is a batch to send or a heartbeat is due."""
        if not self._queue:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_SEC)
        if self._queue and not self._urgent:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SEC):
                    while not self._urgent and len(self._queue) < _MAX_BATCH_EVENTS:
                        await self._wake.wait()
                        self._wake.clear()
        self._urgent = False

    def _lose(self, error: RunApiError) -> None:
        self._lost = error
        for queued in (*self._in_flight, *self._queue):
            if not queued.acknowledged.done():
                queued.acknowledged.set_exception(error)
        self._in_flight.clear()
        self._queue.clear()
        logger.error("lost the platform: %s", error.message)
        if self._on_lost is not None:
            self._on_lost(error)

    async def _call(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """One call, repeated while the platform is unreachable or not able to answer."""
        loop = asyncio.get_running_loop()
        give_up_at, delay = loop.time() + GIVE_UP_SEC, _BACKOFF_START
        while True:
            if self._lost is not None:
                raise self._lost
            try:
                response = await self._http.request(
                    method, self._run_url + path, headers={**self._headers, **(headers or {})}, **options
                )
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return response.json() if method != "PUT" else {}
                trouble = f"{response.status_code}: {response.text[:500]}"
                if response.status_code < 500 and response.status_code not in (408, 425, 429):
                    raise RunApiError(f"the platform refused {method} {path} of the run: {trouble}")
            if loop.time() + delay > give_up_at:
                raise PlatformUnreachableError(
                    f"{method} {self._run_url}{path} failed for {GIVE_UP_SEC:g} s, last: {trouble}"
                )
            logger.info("repeating %s %s in %.1f s: %s", method, path, delay, trouble)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _BACKOFF_END)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
