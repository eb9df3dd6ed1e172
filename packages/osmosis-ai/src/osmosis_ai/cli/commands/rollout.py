"""``osmosis rollout``."""

import click

from osmosis_ai.cli.options import FORCE, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group


@click.group("rollout", cls=Group)
def app() -> None:
    """Start a rollout; list the synced ones."""


@app.command("init")
@click.argument("name")
@FORCE
def init(name: str, force: bool) -> Result:
    """Write the scaffold of a new rollout."""
    from osmosis_ai.cli.rollouts import new_rollout

    return new_rollout(name, force=force)


@app.command("list")
@paged
@click.option("--branch", default=None, help="Show the rollouts of this branch instead of the default one.")
def list_(limit: int, everything: bool, branch: str | None) -> Result:
    """List the rollouts that the platform synced."""
    from osmosis_ai.cli.rollouts import list_rollouts

    return list_rollouts(limit, everything, branch)
