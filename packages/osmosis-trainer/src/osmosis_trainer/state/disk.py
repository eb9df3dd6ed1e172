"""A full disk: said clearly, waited for, never a half-written file that counts."""

from __future__ import annotations

import asyncio
import errno
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from osmosis_trainer.collect.stop import StopSignal
from osmosis_trainer.errors import TrainerError

WAIT_S = 1800.0
TRY_EVERY_S = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFullError(TrainerError):
    """There is no room for what has to be on disk; everything written before is as it was."""

    code = "disk_full"


def is_full(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a full disk or an exhausted quota."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        # safetensors has errors of its own, with the system's number in the text.
        if any(f"(os error {number})" in str(seen) for number in _FULL):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


async def with_room[Result](
    write: Callable[[], Awaitable[Result]],
    *,
    what: str,
    folder: Path,
    stop: StopSignal,
    log: Callable[[str], None],
) -> Result:
    """Await `write()`; while the disk is full say so and do it again, for WAIT_S at most.

    `write` must leave nothing behind when it fails. Raises DiskFullError when there is still no room, or when a stop is
    asked for meanwhile.
    """
    began, told = time.monotonic(), False
    while True:
        try:
            return await write()
        except Exception as error:
            if not is_full(error):
                raise
            state = f"{what} cannot be written: the disk of {folder} is full ({_free(folder)} free)"
            if stop.requested or time.monotonic() - began >= WAIT_S:
                raise DiskFullError(
                    f"{state}. Make room and start the run again: it goes on where the last saved state ends"
                ) from error
        if not told:
            log(f"{state}; the run waits up to {WAIT_S / 60:.0f} minutes for room")
            told = True
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait({waiting}, timeout=TRY_EVERY_S)
        waiting.cancel()


def _free(folder: Path) -> str:
    while not folder.exists():
        folder = folder.parent
    return f"{shutil.disk_usage(folder).free / 2**20:.1f} MiB"
