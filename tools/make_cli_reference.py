"""Writes the command tables of docs/cli.md from the commands themselves. Usage: python tools/make_cli_reference.py"""

import re
from pathlib import Path

import click

from osmosis_ai.cli.tree import COMMANDS, HIDDEN, root

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"


def reference() -> str:
    """All commands as Markdown: one section per noun, one row per command."""
    context = click.Context(root, info_name="osmosis")
    parts = []
    for name in {**COMMANDS, **HIDDEN}:
        command = root.get_command(context, name)
        assert command is not None
        parts.append(
            f"### `osmosis {name}`\n\n{command.help}\n\n| command | what it does | options |\n|---|---|---|"
        )
        parts += [row(f"osmosis {path}", leaf) for path, leaf in leaves(name, command, context)]
        parts.append("")
    return "\n".join(parts)


def leaves(path: str, command: click.Command, parent: click.Context) -> list[tuple[str, click.Command]]:
    """Commands below a group, with their words."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command, info_name=path, parent=parent)
    found = []
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        found += leaves(f"{path} {name}", inner, context)
    return found


def row(path: str, command: click.Command) -> str:
    """One command as a table row."""
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    words = [path, *(f"[{_label(a)}]" if not a.required else _label(a) for a in arguments)]
    shown = "; ".join(_option(option) for option in options)
    return f"| `{' '.join(words)}` | {command.help} | {shown or '-'} |"


def _label(argument: click.Argument) -> str:
    return argument.metavar or argument.name.upper()


def _option(option: click.Option) -> str:
    value = "" if option.is_flag else " " + (option.metavar or option.name.upper())
    default = ""
    if not option.is_flag and isinstance(option.default, int | str):
        default = f" (default `{option.default}`)"
    limits = ""
    if isinstance(option.type, click.IntRange):
        least, most = option.type.min, option.type.max
        limits = f" {least} or more" if most is None else f" {least} to {most}"
    return f"`{', '.join(option.opts)}{value}`{limits}{default} {(option.help or '').rstrip('.')}".replace(
        "|", "\\|"
    )


def with_reference(page: str) -> str:
    """The page with its tables replaced."""
    block = f"{BEGIN}\n\n{reference()}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
