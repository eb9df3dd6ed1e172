"""``osmosis auth``."""

import click

from osmosis_ai.cli.options import YES
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group


@click.group("auth", cls=Group)
def app() -> None:
    """Log in, log out, see who you are."""


@app.command("login")
@click.option("-f", "--force", is_flag=True, help="Clear the saved login first.")
@click.option(
    "--token", default=None, metavar="TOKEN", help="Use a personal access token instead of the browser."
)
def login(force: bool, token: str | None) -> Result:
    """Log in with the browser or a token."""
    from osmosis_ai.cli.login import log_in

    return log_in(token, force=force)


@app.command("logout")
@YES
def logout(yes: bool) -> Result:
    """Revoke and remove the saved login."""
    from osmosis_ai.cli.logout import log_out

    return log_out(yes=yes)


@app.command("whoami")
def whoami() -> Result:
    """Show account and workspace."""
    from osmosis_ai.cli.whoami import who_am_i

    return who_am_i()
