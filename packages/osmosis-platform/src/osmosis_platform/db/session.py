"""Engine and sessions. Services are plain functions over a session; whoever opens the session owns the transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Engine, Update, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from osmosis_platform.db.changes import Changes
from osmosis_platform.errors import CannotStart

log = logging.getLogger("osmosis_platform.db")

# The number of the lock that writers on Postgres hold, chosen once.
_WRITING = 6_274_113


def make_engine(url: str) -> Engine:
    """An engine for SQLite (with WAL and foreign keys) or Postgres; on both, write transactions take a lock at their start.

    Raises CannotStart for an address that is none, and for a database whose driver is not installed.
    """
    # Requests run in a pool of 40 threads, jobs in a few more: each may hold one connection.
    # Errors of statements reach the log: they must not carry what was about to be stored.
    address = _with_driver(url)
    on_sqlite = address.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            address,
            pool_pre_ping=not on_sqlite,
            pool_size=10,
            max_overflow=50,
            hide_parameters=True,
            connect_args={} if on_sqlite else {"client_encoding": "utf8"},
        )
    except ModuleNotFoundError as error:
        raise CannotStart(
            f"OSMOSIS_DATABASE_URL names {address.get_backend_name()}, whose driver {error.name} is not installed. "
            'For Postgres run: pip install "osmosis-platform[postgres]"'
        ) from error
    if on_sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin if on_sqlite else _lock)
    return engine


def _with_driver(url: str) -> URL:
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise CannotStart(
            "OSMOSIS_DATABASE_URL is no address such as postgresql://user@host/name."
        ) from error
    if address.drivername in ("postgres", "postgresql"):
        return address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() not in ("sqlite", "postgresql"):
        raise CannotStart(
            f"OSMOSIS_DATABASE_URL names {address.get_backend_name()}; the platform keeps its data in SQLite or Postgres."
        )
    return address


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not start transactions by itself: BEGIN is ours, see _begin.
    connection.isolation_level = None
    cursor = connection.cursor()
    # FULL: what was acknowledged survives a power cut, not only a killed process. Measured cost: 490 instead of 840 jobs/s.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=15000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Any) -> None:
    # A transaction that reads first and writes later would fail with "database is locked" when another one wrote
    # in between; those that may write take the lock at once. Read-only sessions opt out.
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _lock(connection: Any) -> None:
    # The rules of services (look, then write) count on being alone, as they are on SQLite.
    if not connection.get_execution_options().get("read_only", False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITING})")


class Database:
    """The process's one database: `with database.write() as session` commits at the end, `read()` never writes.

    `changes` tells what was committed here.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = make_engine(url)
        self._write = sessionmaker(self.engine, expire_on_commit=False)
        self.changes = Changes()
        self.changes.watch(self._write)
        reading = self.engine.execution_options(read_only=True)
        if self.engine.dialect.name != "sqlite":  # where a snapshot is the default
            reading = reading.execution_options(isolation_level="REPEATABLE READ")
        self._read = sessionmaker(reading, expire_on_commit=False)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that commits when the block ends and rolls back when it raises."""
        with self._write.begin() as session:
            yield session

    def note(self, statement: Update) -> None:
        """Do what nothing depends on: while nothing can be written, because the disk is full, reading goes on without it."""
        try:
            with self.write() as session:
                session.execute(statement)
        except OperationalError as error:
            log.warning("the database takes nothing in now: %s", error.orig)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent snapshot for reading; what was loaded stays usable after the block."""
        with self._read() as session:
            yield session  # closing ends the transaction and detaches what was loaded, without expiring it

    def close(self) -> None:
        """Close pooled connections."""
        self.engine.dispose()
