"""``osmosis upgrade``."""

import click

from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Command


@click.command("upgrade", cls=Command)
def app() -> Result:
    """Upgrade this program from where it was installed."""
    from osmosis_ai.cli.upgrade import upgrade_installation

    return upgrade_installation()
