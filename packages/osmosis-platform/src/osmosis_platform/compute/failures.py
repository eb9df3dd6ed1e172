"""Why a run ends without result, and full disks."""

from __future__ import annotations

import errno

from sqlalchemy.exc import OperationalError

from osmosis_platform.errors import PlatformError

_POSTGRES_DISK_FULL = "53100"


class RunFailed(PlatformError):
    """The run cannot go on, and trying again would change nothing; `error_type` is a stable word for the cause."""

    status, code = 400, "RUN_FAILED"

    def __init__(self, message: str, error_type: str) -> None:
        super().__init__(message)
        self.error_type = error_type


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that there is no space left."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(seen, OperationalError) and (
            "full" in str(seen.orig) or getattr(seen.orig, "sqlstate", None) == _POSTGRES_DISK_FULL
        ):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def disk_full(where: str) -> RunFailed:
    """The failure to report for it."""
    return RunFailed(f"The disk of the platform is full ({where}). Make room and submit again.", "disk_full")
