"""Fetching the files of a run: eight at a time, each resumed, checked and moved into place by itself."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from osmosis_ai.cli.downloads.manifest import RemoteFile, RunDownloads, escapes
from osmosis_ai.cli.downloads.workers import each_in_parallel
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.api.download import ATTEMPTS, fetch, partial_path
from osmosis_ai.platform.api.transfer import transfer_client
from osmosis_ai.platform.errors import AuthError, DiskFullError, PlatformError

WORKERS = 8
_BATCH = 500
_URL = re.compile(r"https?://\S+")


@dataclass(slots=True)
class Outcome:
    """What happened to the files."""

    downloaded: list[RemoteFile] = field(default_factory=list)
    skipped: list[RemoteFile] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)

    @property
    def bytes_downloaded(self) -> int:
        """Bytes of the files that were fetched now."""
        return sum(file.size for file in self.downloaded)


def is_present(root: Path, file: RemoteFile) -> bool:
    """Whether the file is there already, in the right size."""
    target = root / file.path
    return target.is_file() and not target.is_symlink() and target.stat().st_size == file.size


def fetch_files(
    client: PlatformClient,
    kind: RunDownloads,
    run_id: str,
    files: Sequence[RemoteFile],
    root: Path,
    *,
    overwrite: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Fetch what is missing below ``root``. A file that fails is reported in the outcome; the others go on.

    Raises:
        PlatformError: no addresses could be got at all.
        CLIError: nothing can be written to ``root``.
        DiskFullError: there is no room; complete files are kept.
    """
    outcome = Outcome()
    wanted: list[RemoteFile] = []
    for file in files:
        if escapes(root, file.path):
            outcome.failed.append({"path": file.path, "error": "a symlink leads outside the output folder"})
        elif not overwrite and is_present(root, file):
            outcome.skipped.append(file)
        else:
            wanted.append(file)
    if not wanted:
        return outcome
    urls = _Addresses(client, kind, run_id)
    urls.load(wanted)
    _make_root(root)
    done, lock, stop = 0, threading.Lock(), threading.Event()

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            progress(done)

    problems: dict[str, str | None] = {}
    with transfer_client(client.base_url) as http:
        fetch_one = partial(_fetch_one, http, urls, root, add, stop)
        try:
            for file, problem in each_in_parallel(fetch_one, wanted, WORKERS, stop):
                problems[file.path] = problem
        except BaseException:
            for file in wanted:
                partial_path(root / file.path).unlink(missing_ok=True)
            raise
    for file in wanted:
        problem = problems[file.path]
        if problem is None:
            outcome.downloaded.append(file)
        else:
            outcome.failed.append({"path": file.path, "error": problem})
    return outcome


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CLIError(
            f"The output folder {root} cannot be made: {error.strerror}. Choose another one with -o.",
            details={"path": str(root)},
        ) from error


def _fetch_one(
    http: httpx.Client,
    urls: "_Addresses",
    root: Path,
    added: Callable[[int], None],
    stop: threading.Event,
    file: RemoteFile,
) -> str | None:
    """None when the file is in place, else why not."""

    def address(renew: bool) -> str | None:
        if renew:
            urls.renew(file)
        return urls.get(file)

    try:
        fetch(http, address, root / file.path, expected_size=file.size, added=added, stop=stop)
    except (DiskFullError, AuthError):
        raise
    except PlatformError as error:
        return _URL.sub("<redacted URL>", error.message)
    return None


class _Addresses:
    """Presigned addresses of a run's files, fetched in batches and renewed one by one when they have expired."""

    def __init__(self, client: PlatformClient, kind: RunDownloads, run_id: str) -> None:
        self._client = client
        self._path = f"/{kind.path}/{segment(run_id)}/{kind.outputs}/download-urls"
        self._urls: dict[str, str] = {}
        self._lock = threading.Lock()

    def get(self, file: RemoteFile) -> str | None:
        """The address of a file, or None when the platform gave none."""
        with self._lock:
            return self._urls.get(file.path)

    def load(self, files: Sequence[RemoteFile]) -> None:
        """Ask for addresses, at most 500 in a request."""
        for start in range(0, len(files), _BATCH):
            answer = self._ask(files[start : start + _BATCH])
            with self._lock:
                self._urls |= answer

    def renew(self, file: RemoteFile) -> None:
        """Replace one address."""
        answer = self._ask([file])
        with self._lock:
            self._urls.pop(file.path, None)
            self._urls |= answer

    def _ask(self, files: Sequence[RemoteFile]) -> dict[str, str]:
        items = [{"path": file.path, **({"token": file.token} if file.token else {})} for file in files]
        answer = self._post(items)
        listed: list[dict[str, Any]] = next(
            (answer[key] for key in ("items", "files", "urls") if answer.get(key) is not None), []
        )
        urls: dict[str, str] = {}
        for entry in listed:
            url = entry.get("url") or entry.get("presignedUrl") or entry.get("presigned_url")
            if url:
                urls[str(entry["path"])] = str(url)
        return urls

    def _post(self, items: list[dict[str, str]]) -> dict[str, Any]:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(0.5 * 2 ** (attempt - 1))
            try:
                return self._client.post(self._path, {"items": items})
            except PlatformError as error:
                final = error.status_code is not None and error.status_code < 500 and error.status_code != 429
                if final or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")
