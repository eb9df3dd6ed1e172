"""Folders of rollouts on the rollout host, and copies of what user code left in them."""

import asyncio
import errno
import logging
import os
import shutil
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from osmosis_ai.rollout.utils.identifiers import ensure_single_path_segment
from osmosis_ai.rollout.utils.thread_batches import ThreadBatches

logger = logging.getLogger(__name__)

ARTIFACT_ROOT_ENV = "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"
HARBOR_ARTIFACTS_DIR = Path("/logs/artifacts")
GRADER_ARTIFACTS_SNAPSHOT_DIRNAME = ".osmosis-artifacts"
HEALTH_CHECK_FILENAME = ".osmosis-health-check"
CREATE_ATTEMPTS = 3
CREATE_BACKOFF_SECONDS = 0.5
_LOGGED_ID_CHARS = 200
# Rollouts that start wait for it.
_FOLDERS = ThreadBatches(pause_sec=0.002)

type FileState = tuple[int, int, int]


def default_artifact_root() -> Path:
    """The folder of all rollouts: ``_OSMOSIS_ROLLOUT_ARTIFACT_ROOT``, else ``~/.osmosis``."""
    override = os.environ.get(ARTIFACT_ROOT_ENV)
    return Path(override) if override else Path.home() / ".osmosis"


async def create_rollout_artifacts_dir(
    root: Path, rollout_id: str, *, attempts: int | None = None
) -> Path | None:
    """``<root>/<rollout_id>/artifacts``, made and proven writable, or None when that is impossible.

    A rollout goes on without a folder, so failures are logged and not raised.
    """
    ensure_single_path_segment(rollout_id, label="rollout_id")
    rollout_dir = f"{root}/{rollout_id}"
    if (made := _made_before(rollout_dir)) is not None:
        return made
    total = CREATE_ATTEMPTS if attempts is None else attempts
    for attempt in range(total):
        try:
            # In a thread: a slow disk must not hold up the event loop.
            return await _FOLDERS.run(partial(_create_and_probe, rollout_dir))
        except (OSError, ValueError) as error:
            # An id no file system takes: too long, or text without an encoding.
            hopeless = isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG
            logger.warning(
                "Cannot prepare artifacts of rollout %s (attempt %d of %d): %s",
                rollout_id[:_LOGGED_ID_CHARS],
                attempt + 1,
                total,
                str(error)[:_LOGGED_ID_CHARS],
            )
            if hopeless:
                return None
        if attempt + 1 < total:
            await asyncio.sleep(CREATE_BACKOFF_SECONDS * 2**attempt)
    return None


def _made_before(rollout_dir: str) -> Path | None:
    """The folder, where it is proven already: the grader comes after the workflow."""
    artifacts = f"{rollout_dir}/artifacts"
    known = os.path.exists(f"{rollout_dir}/{HEALTH_CHECK_FILENAME}") and os.path.isdir(artifacts)
    return Path(artifacts) if known else None


def _create_and_probe(rollout_dir: str) -> Path:
    folder, probe = Path(f"{rollout_dir}/artifacts"), Path(f"{rollout_dir}/{HEALTH_CHECK_FILENAME}")
    try:
        Path(rollout_dir).mkdir()
    except FileNotFoundError:
        Path(rollout_dir).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        pass
    folder.mkdir(exist_ok=True)
    if not probe.exists():
        probe.write_bytes(b"ok\n")
    return folder


def artifact_tree_state(source: Path) -> dict[str, FileState]:
    """``(size, mtime_ns, ctime_ns)`` of every regular file, by its path below ``source`` with ``/``."""
    state: dict[str, FileState] = {}
    for path in _walk(source):
        info = path.lstat()
        if stat.S_ISREG(info.st_mode):
            state[path.relative_to(source).as_posix()] = _state(info)
    return state


def copy_artifact_tree(
    source: Path,
    destination: Path,
    *,
    destination_root: Path,
    baseline: Mapping[str, FileState] | None = None,
    replace_destination: bool = False,
) -> int:
    """Merge the regular files of one tree into another and return how many were copied.

    Links, pipes and devices are skipped with a warning. A file stands in for a folder of the same name and the other way round;
    nothing is deleted unless ``replace_destination`` clears the destination first. Files unchanged since ``baseline`` are skipped.
    A source that is a link or no folder yields 0.

    Raises:
        ValueError: when the destination is not strictly below ``destination_root``.
        OSError: when a folder between them is a symlink.
    """
    _check_destination(destination, destination_root)
    if source.is_symlink() or source.is_junction() or not source.is_dir():
        return 0
    if destination.is_symlink() or (destination.exists() and not destination.is_dir()):
        destination.unlink()
    elif replace_destination and destination.exists():
        shutil.rmtree(destination)
    destination.mkdir(parents=True, exist_ok=True)
    return sum(
        _copy_entry(path, path.relative_to(source), destination, baseline or {}) for path in _walk(source)
    )


def _copy_entry(path: Path, relative: Path, destination: Path, baseline: Mapping[str, FileState]) -> int:
    info = path.lstat()
    target = destination / relative
    if stat.S_ISDIR(info.st_mode) and not path.is_junction():
        _remove_unless(target, target.is_dir() and not target.is_symlink())
        target.mkdir(parents=True, exist_ok=True)
        return 0
    if not stat.S_ISREG(info.st_mode):
        logger.warning("Skipping %s: only regular files are kept as artifacts", path)
        return 0
    if baseline.get(relative.as_posix()) == _state(info):
        return 0
    _remove_unless(target, target.is_file() and not target.is_symlink())
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target, follow_symlinks=False)
    return 1


def _remove_unless(target: Path, fits: bool) -> None:
    if fits or not (target.exists() or target.is_symlink()):
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink()


def _walk(source: Path) -> list[Path]:
    found: list[Path] = []
    for folder, subfolders, files in source.walk(follow_symlinks=False):
        # A junction is walked like a folder, though it leads elsewhere.
        links = [name for name in subfolders if (folder / name).is_junction()]
        subfolders[:] = sorted(name for name in subfolders if name not in links)
        found.extend(folder / name for name in (*subfolders, *links, *sorted(files)))
    return found


def _check_destination(destination: Path, root: Path) -> None:
    trusted = root.resolve()
    lexical = Path(os.path.abspath(destination))
    base = Path(os.path.abspath(root))
    if base in lexical.parents:
        relative = lexical.relative_to(base)
    elif trusted in lexical.parents:
        base, relative = trusted, lexical.relative_to(trusted)
    else:
        raise ValueError(f"artifact destination {destination} is outside trusted root {root}")
    folder = base
    for part in relative.parts[:-1]:
        folder = folder / part
        if folder.is_symlink() or folder.is_junction():
            raise OSError(f"symlink in artifact destination path: {folder}")


def _state(info: os.stat_result) -> FileState:
    return (info.st_size, info.st_mtime_ns, info.st_ctime_ns)
