"""Keeps a local evaluation in its folder."""

import asyncio
import hashlib
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from osmosis_ai.eval.attempt import AttemptRecord
from osmosis_ai.eval.local.folder import RunFolder, now
from osmosis_ai.eval.policy.redaction import redact
from osmosis_ai.worker.run_client import LogLevel


class FolderSink:
    """The sink of a run folder. Secrets are kept out of its log.

    ``on_progress(done, total, attempts)`` is called after each finished attempt, ``on_line`` with each line of the log.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        secrets: Iterable[str] = (),
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        on_line: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.stop_requested = asyncio.Event()
        self._folder = folder
        self._secrets = list(secrets)
        self._on_progress = on_progress
        self._on_line = on_line
        self._blobs = folder.state / "blobs"
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._writing = asyncio.Lock()
        self._log_lock = threading.Lock()
        descriptor = os.open(folder.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._log = os.fdopen(descriptor, "a", encoding="utf-8")

    def close(self) -> None:
        """Close the log."""
        with self._log_lock:
            self._log.close()

    async def finished(self) -> AsyncIterator[Mapping[str, Any]]:
        for attempt in await asyncio.to_thread(self._folder.attempts):
            yield attempt

    async def store(self, content: bytes) -> str:
        return await asyncio.to_thread(self._store, content)

    def _store(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        target = self._blobs / digest
        if not target.exists():
            staging = self._blobs / f".{digest}.{threading.get_ident()}"
            staging.write_bytes(content)
            staging.replace(target)
        return digest

    async def attempt(self, record: AttemptRecord) -> None:
        async with self._writing:
            await asyncio.to_thread(self._keep, record)

    def _keep(self, record: AttemptRecord) -> None:
        place = f"row_{record.row_index}_run_{record.run_index}"
        shutil.rmtree(self._folder.path / "artifacts" / place, ignore_errors=True)
        if record.trajectory_blob is not None:
            self._put(record.trajectory_blob, self._folder.path / "trajectories" / f"{place}.json")
        for artifact in record.artifacts:
            self._put(artifact.sha256, self._folder.path / "artifacts" / place / artifact.path)
        # A leading newline ends whatever half line a crash may have left behind.
        with self._folder.events_path.open("ab") as file:
            file.write(b"\n" + json.dumps(record.fields(), allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _put(self, blob: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._blobs / blob, target)

    def progress(self, **fields: Any) -> None:
        if "current_step" in fields and "total_steps" in fields:
            self._on_progress(int(fields["current_step"]), int(fields["total_steps"]))

    def log(
        self, message: str, *, level: LogLevel = "info", details: Mapping[str, Any] | None = None
    ) -> None:
        self.line("eval", message, level=level)

    def line(self, step: str, message: str, *, level: str = "info") -> None:
        """A line of the log; may be called from any thread."""
        clean = redact(message, self._secrets)
        with self._log_lock:
            if self._log.closed:
                return
            self._log.write(f"{now()} {level.upper():7} {step:8} {clean}\n")
            self._log.flush()
        self._on_line(clean)
