"""Migrations bring a database to exactly the models, and refuse what they do not know."""

from __future__ import annotations

import io
import re
import socket
import sqlite3
import zipfile
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from osmosis_platform.db import migrate as migrations
from osmosis_platform.db.migrate import configuration, migrate
from osmosis_platform.db.models import metadata
from osmosis_platform.db.session import Database
from osmosis_platform.errors import CannotStart
from osmosis_platform.jobs import statements


@pytest.fixture
def database(empty_database: str) -> Database:
    return Database(empty_database)


def test_migrations_and_models_agree(database: Database) -> None:
    migrate(database)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == [], "run python -m osmosis_platform.db.revise"
        assert set(inspect(connection).get_table_names()) == set(metadata.tables) | {"alembic_version"}
    database.close()


@pytest.mark.usefixtures("only_sqlite")
def test_second_start_changes_nothing(database: Database) -> None:
    path = Path(database.url.removeprefix("sqlite:///"))
    migrate(database)
    database.close()
    before = path.read_bytes()
    again = Database(database.url)
    migrate(again)
    again.close()
    assert path.read_bytes() == before


def test_failed_migration_leaves_nothing_behind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(config: object, connection: object) -> None:
        upgrade(config, connection)  # type: ignore[arg-type]
        raise sqlite3.OperationalError("disk full")

    upgrade = migrations._upgrade
    monkeypatch.setattr(migrations, "_upgrade", broken)
    with pytest.raises(sqlite3.OperationalError):
        migrate(database)
    with database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    database.close()


def test_newer_database_is_refused(database: Database) -> None:
    migrate(database)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(CannotStart, match="9999") as caught:
        migrate(database)
    assert caught.value.code == "DATABASE_TOO_NEW"
    database.close()


def test_a_database_out_of_reach_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        database = Database(f"postgresql://ada:sesame@127.0.0.1:{port}/osmosis")
        with pytest.raises(
            CannotStart, match=rf"ada:\*\*\*@127.0.0.1:{port}/osmosis .*cannot be used"
        ) as caught:
            migrate(database)
    assert caught.value.code == "DATABASE_UNREACHABLE"
    assert "sesame" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("osmosis", "no address"),
        ("mysql://ada@127.0.0.1/osmosis", "SQLite or Postgres"),
        ("postgresql+pg8000://ada@127.0.0.1/osmosis", "driver pg8000 is not installed"),
    ],
)
def test_addresses_of_databases_that_cannot_be(url: str, reason: str) -> None:
    with pytest.raises(CannotStart, match=reason):
        Database(url)


def test_schema_and_claims_are_valid_for_postgres() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    schema = "".join(str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables)
    assert "file_size BIGINT" in schema
    assert "sequence BIGSERIAL" in schema
    assert "TIMESTAMP WITH TIME ZONE" in schema
    claim = str(statements.TAKE_DUE.compile(dialect=dialect))
    assert "FOR UPDATE SKIP LOCKED" in claim
    assert "RETURNING" in claim
    printed = io.StringIO()
    config = configuration()
    config.output_buffer = printed
    config.attributes["connection"] = None
    config.attributes["dialect"] = "postgresql"
    command.upgrade(config, "head", sql=True)
    made = set(re.findall(r"CREATE TABLE (\w+)", printed.getvalue()))
    assert made == set(metadata.tables) | {"alembic_version"}


@pytest.mark.slow
def test_wheel_ships_the_migrations(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    project = Path(__file__).parents[3] / "packages" / "osmosis-platform"
    (wheel,) = WheelBuilder(str(project)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {Path(name).name for name in names if "/db/migrations/" in name}
    assert {"env.py", "script.py.mako", "0001_initial.py"} <= shipped
