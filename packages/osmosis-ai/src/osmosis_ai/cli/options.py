"""Options that several commands share."""

from collections.abc import Callable
from typing import Any

import click

from osmosis_ai.cli.paging import DEFAULT_LIMIT

Decorated = Callable[..., Any]

LIMIT = click.option(
    "--limit", type=click.IntRange(1, 50), default=DEFAULT_LIMIT, show_default=True, help="How many to show."
)
ALL = click.option("--all", "everything", is_flag=True, help="Show all.")
LOG_LIMIT = click.option(
    "--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Entries per page."
)
CURSOR = click.option(
    "--cursor", default=None, help="Show the entries before those of an earlier page: its `next_cursor`."
)
CONFIG = click.argument("config_path", type=click.Path(dir_okay=False))
SECRETS_FILE = click.option(
    "--secrets-file", metavar="FILE", help="Values of secrets as NAME=VALUE lines; - is standard input."
)
WATCH = click.option(
    "-w", "--watch", "follow", is_flag=True, help="Show the run as it changes until it is over."
)
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
FORCE = click.option("-f", "--force", is_flag=True, help="Replace what is there.")
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace what exists.")


def output(purpose: str) -> Callable[[Decorated], Decorated]:
    """``-o/--output PATH``."""
    return click.option("-o", "--output", default=None, metavar="PATH", help=purpose)


def not_blank(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse an argument without a character that is seen, such as a variable that is not set."""
    if not value.strip():
        raise click.BadParameter("it must not be empty.")
    return value


def name(parameter: str = "name", metavar: str = "NAME") -> Callable[[Decorated], Decorated]:
    """A required name argument."""
    return click.argument(parameter, metavar=metavar, callback=not_blank)


def paged(function: Decorated) -> Decorated:
    """``--limit`` and ``--all``."""
    return LIMIT(ALL(function))


def log_page(function: Decorated) -> Decorated:
    """``--limit`` and ``--cursor`` of logs."""
    return LOG_LIMIT(CURSOR(function))
