"""``osmosis template``."""

import click
from click.shell_completion import CompletionItem

from osmosis_ai.cli.options import FORCE
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of starters, offline."""
    from osmosis_ai.templates.starters import STARTERS

    return [CompletionItem(name) for name in sorted(STARTERS) if name.startswith(incomplete)]


@click.group("template", cls=Group)
def app() -> None:
    """Starter rollouts."""


@app.command("list")
def list_() -> Result:
    """List the starters."""
    from osmosis_ai.cli.starters import list_starters

    return list_starters()


@app.command("apply")
@click.argument("name", shell_complete=complete_name)
@FORCE
def apply(name: str, force: bool) -> Result:
    """Copy a starter into this workspace."""
    from osmosis_ai.cli.starters import apply_template

    return apply_template(name, force=force)
