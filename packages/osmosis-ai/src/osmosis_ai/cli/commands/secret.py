"""``osmosis secret``."""

import click

from osmosis_ai.cli.options import YES, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group

# A secret's name has rules of its own.
NAME = click.argument("name", metavar="NAME")
SCOPE = click.option("--scope", default="personal", show_default=True, help="personal or workspace.")


@click.group("secret", cls=Group)
def app() -> None:
    """Secrets that runs may use. Values are never shown."""


@app.command("list")
@click.option("--scope", default="all", show_default=True, help="all, workspace or personal.")
@paged
def list_(scope: str, limit: int, everything: bool) -> Result:
    """List names and scopes."""
    from osmosis_ai.cli.secrets import list_secrets

    return list_secrets(scope, limit, everything)


@app.command("set")
@NAME
@SCOPE
@click.option("--env", "variable", default=None, metavar="VARNAME", help="Read the value from this variable.")
def set_(name: str, scope: str, variable: str | None) -> Result:
    """Create or update a secret."""
    from osmosis_ai.cli.secrets import set_secret

    return set_secret(name, scope, variable)


@app.command("delete")
@NAME
@SCOPE
@YES
def delete(name: str, scope: str, yes: bool) -> Result:
    """Delete a secret."""
    from osmosis_ai.cli.secrets import delete_secret

    return delete_secret(name, scope, yes=yes)
