"""The command tree. A group's module is imported when the group is used, so that help and errors start fast."""

import difflib
import importlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import click

WORKFLOW = "Workflow Commands"
PLATFORM = "Platform Commands"
COMMANDS: dict[str, tuple[str, str]] = {
    "dataset": (WORKFLOW, "Upload, inspect and download datasets."),
    "train": (WORKFLOW, "Submit and follow training runs."),
    "model": (WORKFLOW, "List models; deploy and undeploy LoRA models."),
    "eval": (WORKFLOW, "Submit and follow evaluation runs."),
    "benchmark": (WORKFLOW, "List benchmarks; submit and follow benchmark runs."),
    "rollout": (WORKFLOW, "Start a rollout; list the synced ones."),
    "template": (WORKFLOW, "Starter rollouts."),
    "doctor": (WORKFLOW, "Check, and repair, the workspace directory."),
    "auth": (PLATFORM, "Log in, log out, see who you are."),
    "secret": (PLATFORM, "Secrets that runs may use."),
    "upgrade": (PLATFORM, "Upgrade this program from where it was installed."),
}
# For people who develop rollouts against a platform; not in the help.
HIDDEN = {"dev": "Development rollout servers."}
_SIMILARITY = 0.5
_CLICK_NARROWEST, _NARROWEST = 52, 30
_LEFT_COLUMN = 30


class _HelpFormatter(click.HelpFormatter):
    """Help whose left column leaves room for the text in narrow terminals."""

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = _LEFT_COLUMN, col_spacing: int = 2
    ) -> None:
        super().write_dl(
            rows, min(col_max, self.width // 3) if self.width < _CLICK_NARROWEST else col_max, col_spacing
        )


class _Context(click.Context):
    formatter_class = _HelpFormatter


class Command(click.Command):
    """A command of ours: its help fits narrow terminals."""

    context_class = _Context


class Group(click.Group):
    """A group that prints its help when no command follows."""

    context_class = _Context
    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Help on standard output and exit 0 for a bare group."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say that there is none."""
        name = str(args[0])
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            self.unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def unknown(self, ctx: click.Context, name: str) -> NoReturn:
        """The usage error for an unknown command."""
        ctx.fail(f"No such command '{name}'.")


class Interrupted(Exception):
    """Ctrl-C, in a form that click does not answer with an empty line on standard error."""


@contextmanager
def _interruption_passes() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise Interrupted from interrupt


class Root(Group):
    """The root: knows its commands by name and loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        module = importlib.import_module(f"osmosis_ai.cli.commands.{cmd_name}")
        return cast(click.Command, module.app)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse; Ctrl-C is raised as :class:`Interrupted`. Help fits terminals that are narrower than click expects."""
        columns = shutil.get_terminal_size().columns
        if columns < _CLICK_NARROWEST:
            extra.setdefault("terminal_width", max(columns, _NARROWEST))
        with _interruption_passes():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run; Ctrl-C is raised as :class:`Interrupted`."""
        with _interruption_passes():
            return super().invoke(ctx)

    def unknown(self, ctx: click.Context, name: str) -> NoReturn:
        """Suggest a command with a similar name; point ``help`` to ``--help``."""
        text = f"No such command '{name}'."
        if name == "help":
            ctx.fail(f"{text} Run 'osmosis --help'.")
        close = difflib.get_close_matches(name, list(COMMANDS), n=1, cutoff=_SIMILARITY)
        ctx.fail(f"{text} Did you mean '{close[0]}'?" if close else text)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two panels, without importing any command."""
        for panel in (WORKFLOW, PLATFORM):
            with formatter.section(panel):
                formatter.write_dl(
                    [(name, purpose) for name, (owner, purpose) in COMMANDS.items() if owner == panel]
                )


def ignored_flag(*names: str, purpose: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """An option that exists for the help only: its flag is taken out before parsing."""
    return click.option(*names, is_flag=True, expose_value=False, help=purpose)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@ignored_flag("--json", purpose="Output for programs; allowed anywhere before --.")
@ignored_flag("--plain", purpose="Plain lines for shells; allowed anywhere before --.")
@ignored_flag("-V", "--version", purpose="Show the version and exit.")
def root() -> None:
    """Evaluate, train and serve your own LLM agents."""


def command_label(arguments: list[str]) -> str:
    """The command in error envelopes: as many words as name a command, even an unknown one."""
    words = []
    for argument in arguments:
        if argument == "--":
            break
        if not argument.startswith("-"):
            words.append(argument)
    if not words:
        return "<root>"
    if words[0] in {"doctor", "upgrade"} or words[0] not in {*COMMANDS, *HIDDEN}:
        depth = 1
    elif words[:2] in (["benchmark", "runs"], ["eval", "cache"]):
        depth = 3
    else:
        depth = 2
    return " ".join(words[:depth])
