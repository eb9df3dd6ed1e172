"""Which errors say that the disk is full, whichever database says so."""

from __future__ import annotations

import errno
import sqlite3

import psycopg.errors
import pytest
from sqlalchemy.exc import OperationalError

from osmosis_platform.compute.failures import is_disk_full


@pytest.mark.parametrize(
    ("cause", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (sqlite3.OperationalError("database is locked"), False),
        (psycopg.errors.DiskFull("could not extend file: No space left on device"), True),
        (psycopg.errors.AdminShutdown("terminating connection"), False),
        (OSError(errno.EACCES, "Permission denied"), False),
    ],
)
def test_a_full_disk_is_recognised(cause: Exception, full: bool) -> None:
    error = cause if isinstance(cause, OSError) else OperationalError("INSERT", {}, cause)
    assert is_disk_full(error) is full
    wrapped = RuntimeError("while storing")
    wrapped.__cause__ = error
    assert is_disk_full(wrapped) is full
