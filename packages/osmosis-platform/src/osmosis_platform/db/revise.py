"""`python -m osmosis_platform.db.revise "what changes"`: write the next migration from the difference to the models.

For maintainers, in a checkout. Read what it wrote before committing it: Alembic cannot see renames or what data needs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.script import ScriptDirectory

from osmosis_platform.db.migrate import configuration, migrate
from osmosis_platform.db.session import Database


def revise(message: str) -> Path:
    """Compare an empty database at the newest schema with the models; returns the file written."""
    config = configuration()
    script = ScriptDirectory.from_config(config)
    number = f"{len(list(script.walk_revisions())) + 1:04d}"
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/empty.sqlite3")
        try:
            if number != "0001":
                migrate(database)
            with database.engine.begin() as connection:
                config.attributes["connection"] = connection
                slug = "_".join(message.lower().split())[:40]
                config.set_main_option("file_template", f"{number}_{slug}")
                written = command.revision(config, message, autogenerate=True, rev_id=number)
        finally:
            database.close()
    assert written is not None
    assert not isinstance(written, list)
    return Path(written.path)


if __name__ == "__main__":
    print(revise(" ".join(sys.argv[1:]) or "change"))  # noqa: T201
