"""Brings a database to the schema of this version, with the migrations that ship inside the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from osmosis_platform.db.session import Database
from osmosis_platform.errors import CannotStart

FOLDER = Path(str(resources.files("osmosis_platform.db") / "migrations"))


def migrate(database: Database) -> None:
    """Create or upgrade the schema in one transaction; raises CannotStart for a database of a newer version, out of reach or without Unicode."""
    _reach(database)
    config = configuration()
    script = ScriptDirectory.from_config(config)
    with database.engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current == script.get_current_head():
            return
        _refuse_newer(script, current)
        _upgrade(config, connection)


def _reach(database: Database) -> None:
    if database.engine.dialect.name == "sqlite":
        return
    address = database.engine.url.render_as_string(hide_password=True)
    try:
        with database.engine.connect() as connection:
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    except OperationalError as error:
        reason = " ".join(str(error.orig).split())
        raise CannotStart(
            f"The database {address} (OSMOSIS_DATABASE_URL) cannot be used: {reason}",
            code="DATABASE_UNREACHABLE",
        ) from None
    if encoding != "UTF8":
        raise CannotStart(
            f"The database {address} (OSMOSIS_DATABASE_URL) does not keep text as UTF-8. Make another one with: "
            "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0",
            code="DATABASE_ENCODING",
        )


def configuration() -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config


def _upgrade(config: Config, connection: Connection) -> None:
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _refuse_newer(script: ScriptDirectory, current: str | None) -> None:
    known = {revision.revision for revision in script.walk_revisions()}
    if current is not None and current not in known:
        raise CannotStart(
            f"The database has the schema {current} of a newer version. Start that version, or restore a backup made by this one.",
            code="DATABASE_TOO_NEW",
        )
