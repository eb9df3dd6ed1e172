"""``osmosis dev``."""

import click

from osmosis_ai.cli.options import YES, name
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group

SERVER_ID = name("server_id", "SERVER_ID")


@click.group("dev", cls=Group)
def app() -> None:
    """For developing rollouts against a platform."""


@app.group("server", cls=Group)
def server() -> None:
    """Development rollout servers, run by the platform."""


@server.command("up")
@click.option("--no-ttl", is_flag=True, help="Keep the server until it is stopped.")
@click.option(
    "--ttl-hours", type=click.IntRange(min=1), default=24, show_default=True, help="Stop it after this time."
)
@YES
def up(no_ttl: bool, ttl_hours: int, yes: bool) -> Result:
    """Start a server for the rollout in the current folder, at the pushed HEAD."""
    from osmosis_ai.cli.dev_servers import start_server

    return start_server(None if no_ttl else ttl_hours, yes=yes)


@server.command("down")
@SERVER_ID
def down(server_id: str) -> Result:
    """Stop a server."""
    from osmosis_ai.cli.dev_servers import stop_server

    return stop_server(server_id)


@server.command("logs")
@SERVER_ID
@click.option(
    "-f", "--follow/--no-follow", default=None, help="Go on as new lines come; the default for people."
)
@click.option(
    "-n", "--tail", type=click.IntRange(1, 200), default=100, show_default=True, help="How many lines first."
)
def logs(server_id: str, follow: bool | None, tail: int) -> int:
    """Show what a server prints."""
    from osmosis_ai.cli.dev_servers import show_server_logs

    return show_server_logs(server_id, tail, follow)


@server.command("list")
def list_() -> Result:
    """List the servers."""
    from osmosis_ai.cli.dev_servers import list_servers

    return list_servers()
