"""Transactions: all or nothing, snapshots, no deadlock of writers, foreign keys, UTC."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import AccessToken, User
from osmosis_platform.context import Platform
from osmosis_platform.db.migrate import migrate
from osmosis_platform.db.session import Database
from osmosis_platform.errors import CannotStart


def count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(User)) or 0


def person(number: int) -> User:
    return User(email=f"{number}@example.com", name="A")


def test_block_that_raises_leaves_nothing(platform: Platform) -> None:
    def broken() -> None:
        with platform.database.write() as session:
            session.add(person(1))
            session.flush()
            raise ValueError

    with pytest.raises(ValueError):
        broken()
    with platform.database.read() as session:
        assert count(session) == 0


def test_reader_sees_one_moment_and_does_not_block_the_writer(platform: Platform) -> None:
    with platform.database.read() as reader:
        assert count(reader) == 0
        with platform.database.write() as writer:
            writer.add(person(1))
        assert count(reader) == 0
    with platform.database.read() as reader:
        assert count(reader) == 1


def test_read_then_write_never_fails_for_a_writer_in_between(platform: Platform) -> None:
    errors: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for number in range(10):
                with platform.database.write() as session:
                    seen = count(session)
                    session.add(person(offset + number))
                    session.flush()
                    assert count(session) == seen + 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    with platform.database.read() as session:
        assert count(session) == 40


def test_a_database_without_unicode_is_refused(database_of_bytes: str) -> None:
    database = Database(database_of_bytes)
    with pytest.raises(CannotStart, match="ENCODING 'UTF8'"):
        migrate(database)
    database.close()


def test_foreign_keys_hold(platform: Platform) -> None:
    token = AccessToken(user_id="nobody", name="t", kind="personal", token_hash="h", hint="h")
    with pytest.raises(IntegrityError), platform.database.write() as session:
        session.add(token)


@pytest.mark.usefixtures("only_sqlite")
def test_committed_is_durable(platform: Platform) -> None:
    with platform.database.read() as session:
        assert session.scalar(text("PRAGMA synchronous")) == 2
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"


def test_moments_are_utc_and_naive_ones_are_refused(platform: Platform) -> None:
    east = datetime(2026, 1, 1, 3, 0, tzinfo=timezone(timedelta(hours=5)))
    with platform.database.write() as session:
        user = person(1)
        user.created_at = east
        session.add(user)
    with platform.database.read() as session:
        found = session.scalars(select(User.created_at)).one()
    assert found == east
    assert found.tzinfo is UTC
    with pytest.raises(StatementError, match="naive"), platform.database.write() as session:
        session.add(User(email="b@c.d", name="B", created_at=datetime(2026, 1, 1)))


@pytest.mark.usefixtures("only_sqlite")
def test_database_file_is_in_the_private_folder(platform: Platform) -> None:
    folder: Path = platform.settings.data_dir
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "osmosis.sqlite3").is_file()


def test_errors_of_statements_do_not_carry_values(platform: Platform) -> None:
    user = {"email": "ada@example.com", "name": "canary-value"}
    with platform.database.write() as session:
        session.add(User(**user))
    with pytest.raises(IntegrityError) as caught, platform.database.write() as session:
        session.add(User(**user))
    assert "canary-value" not in str(caught.value)
