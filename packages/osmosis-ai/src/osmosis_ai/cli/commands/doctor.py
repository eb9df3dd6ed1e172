"""``osmosis doctor``."""

import click

from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Command


@click.command("doctor", cls=Command)
@click.argument("path", type=click.Path(exists=True), default=".")
@click.option("--fix", is_flag=True, help="Create what is missing; never overwrite.")
def app(path: str, fix: bool) -> Result:
    """Check, and repair, the workspace directory."""
    from osmosis_ai.cli.doctor import check_workspace

    return check_workspace(path, fix=fix)
