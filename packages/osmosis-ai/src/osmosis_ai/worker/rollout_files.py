"""Files that a rollout left below the artifact root, read without trusting the code that wrote them.

User code may put anything there, links included, and may change it while it is read. Every step is therefore taken relative to
an open folder and never follows a link.
"""

import asyncio
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 * 2**20
MAX_TOTAL_BYTES = 256 * 2**20
MAX_FILES = 1000
MAX_PATH_CHARS = 1024
MAX_DEPTH = 64
MAX_TRAJECTORY_BYTES = 128 * 2**20

_POLL_SEC = 0.1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


async def wait_for_trajectory(root: Path, rollout_id: str, *, wait_s: float) -> bytes | None:
    """The trajectory document of a rollout. It is written after the grader's verdict was acknowledged, so it may take a moment.

    None if there is none within ``wait_s`` seconds, or if it belongs to another rollout.
    """
    give_up_at = asyncio.get_running_loop().time() + wait_s
    while True:
        content = await asyncio.to_thread(_read_trajectory, root, rollout_id)
        if content is not None or asyncio.get_running_loop().time() >= give_up_at:
            return content
        await asyncio.sleep(_POLL_SEC)


def _read_trajectory(root: Path, rollout_id: str) -> bytes | None:
    try:
        with _open_folder(root, rollout_id) as folder:
            content = _read_file("trajectory.json", folder, MAX_TRAJECTORY_BYTES)
    except OSError:
        return None
    try:
        document = json.loads(content) if content is not None else None
    except ValueError:
        return None
    if not isinstance(document, dict) or _owner(document) not in (None, rollout_id):
        return None
    return content


def _owner(document: dict[str, object]) -> object:
    """The rollout that the document says it is of; None when it does not say."""
    extra = document.get("extra")
    osmosis = extra.get("osmosis") if isinstance(extra, dict) else None
    named = osmosis.get("rollout_id") if isinstance(osmosis, dict) else None
    rollout_id, slash, _ = str(document.get("trajectory_id") or "").partition("/")
    return named or document.get("session_id") or (rollout_id if slash else None)


def read_artifacts(root: Path, rollout_id: str) -> Iterator[tuple[str, bytes]]:
    """The artifacts of a rollout as (relative path, content), in a stable order, one file in memory at a time.

    Regular files only. Links and special files, files over 64 MiB or more than 64 folders down, and everything after 1,000
    files or 256 MiB are skipped with a warning. ``manifest.json`` at the top is reserved and left out.
    """
    try:
        with _open_folder(root, rollout_id, "artifacts") as folder:
            yield from _walk(folder, rollout_id)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("artifacts of rollout %s cannot be read: %s", rollout_id, error)


def _walk(top: int, rollout_id: str) -> Iterator[tuple[str, bytes]]:
    count, total = 0, 0
    for folder, folders, names, descriptor in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        folders.sort()
        # Each level keeps a folder open and the walk one call deeper.
        if folders and folder.count("/") >= MAX_DEPTH:
            logger.warning(
                "rollout %s: artifacts more than %d folders down are left out", rollout_id, MAX_DEPTH
            )
            folders.clear()
        for name in sorted(names):
            path = os.path.normpath(os.path.join(folder, name))
            if path == "manifest.json":
                continue
            if count >= MAX_FILES:
                logger.warning("rollout %s: artifacts after the first %d are left out", rollout_id, MAX_FILES)
                return
            if len(path) > MAX_PATH_CHARS or "\\" in path or not path.isprintable():
                logger.warning(
                    "rollout %s: artifact %r is left out: its path is over %d characters or has odd ones",
                    *(rollout_id, path[:200], MAX_PATH_CHARS),
                )
                continue
            content = _read_file(name, descriptor, min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - total))
            if content is None:
                limit = f"{MAX_FILE_BYTES >> 20} MiB a file, {MAX_TOTAL_BYTES >> 20} MiB a rollout"
                logger.warning(
                    "rollout %s: artifact %r is left out: no regular file (links are not followed), or over the limit (%s)",
                    *(rollout_id, path, limit),
                )
                continue
            count, total = count + 1, total + len(content)
            yield path, content


@contextmanager
def _open_folder(root: Path, *names: str) -> Iterator[int]:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _read_file(name: str, folder: int, limit: int) -> bytes | None:
    """The content of a regular file of at most ``limit`` bytes, else None."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(limit + 1)
    return content if len(content) <= limit else None
