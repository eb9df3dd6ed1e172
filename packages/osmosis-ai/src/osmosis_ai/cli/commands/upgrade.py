"""``osmosis upgrade``."""

import click

from osmosis_ai.cli.output.results import Result


@click.command("upgrade")
def app() -> Result:
    """Upgrade this program from where it was installed."""
    from osmosis_ai.cli.upgrade import upgrade_installation

    return upgrade_installation()
