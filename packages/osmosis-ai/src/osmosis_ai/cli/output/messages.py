"""Everything on standard error: status, progress, warnings, errors."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from osmosis_ai.cli.output.as_json import error_document, to_line, warning_document
from osmosis_ai.cli.output.mode import Mode, interactive, mode
from osmosis_ai.cli.output.visible import visible
from osmosis_ai.consts import PACKAGE_VERSION


def write_error_line(text: str) -> None:
    """One line on standard error, as it is: the caller makes text of others visible first."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def status(text: str) -> Iterator[None]:
    """Say what is going on: a spinner for a person, a line otherwise, nothing in JSON mode."""
    if mode() is Mode.JSON:
        yield
    elif interactive() and sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text(visible(text))):
            yield
    else:
        write_error_line(visible(text))
        yield


def notice(text: str) -> None:
    """One line for people; nothing in JSON mode."""
    if mode() is not Mode.JSON:
        write_error_line(visible(text))


def warn(code: str, message: str) -> None:
    """A warning that does not stop the command."""
    match mode():
        case Mode.JSON:
            write_error_line(to_line(warning_document(PACKAGE_VERSION, code, message)).rstrip("\n"))
        case Mode.PLAIN:
            write_error_line(f"warning: {visible(message)}")
        case Mode.RICH:
            write_error_line(_styled(f"⚠ {visible(message)}", "33"))


def show_error(command: str, code: str, message: str, details: dict[str, Any]) -> None:
    """The error that ends the command."""
    if mode() is Mode.JSON:
        try:
            line = to_line(error_document(command, PACKAGE_VERSION, code, message, details))
        except (TypeError, ValueError):
            line = to_line(
                error_document(command, PACKAGE_VERSION, code, message, {"details_omitted": "not JSON"})
            )
        write_error_line(line.rstrip("\n"))
    elif mode() is Mode.PLAIN:
        write_error_line(f"Error: {visible(message)}")
    else:
        write_error_line(f"{_styled('Error:', '1;31')} {visible(message)}")


def show_interrupted(command: str) -> None:
    """The user broke off: one line, or the error object in JSON mode."""
    if mode() is Mode.JSON:
        show_error(command, "INTERRUPTED", "Aborted.", {})
    else:
        # A terminal has just shown ^C without ending the line.
        write_error_line("\nAborted." if sys.stderr.isatty() else "Aborted.")


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress of a transfer in bytes: call the yielded function with the bytes done so far.

    A bar on a terminal; otherwise lines in steps of ten percent, the last one 100 %. Nothing in JSON mode.
    """
    if mode() is Mode.JSON:
        yield lambda _: None
        return
    if interactive() and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    shown = -1

    def lines(done: int) -> None:
        nonlocal shown
        percent = 100 if total == 0 else min(100, done * 100 // total) // 10 * 10
        if percent > shown:
            shown = percent
            write_error_line(f"{label}: {percent}%")

    yield lines


@contextmanager
def counter(label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Progress in things: call the yielded function with (done, total).

    A bar with the time left on a terminal; otherwise a line in steps of ten percent. Nothing in JSON mode.
    """
    if mode() is Mode.JSON:
        yield lambda _done, _total: None
        return
    if interactive() and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    shown = -1

    def lines(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 if total == 0 else min(100, done * 100 // total) // 10 * 10
        if percent > shown:
            shown = percent
            write_error_line(f"{label}: {done} of {total} {unit}")

    yield lines


def _styled(text: str, code: str) -> str:

    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if colour or os.environ.get("FORCE_COLOR") else text
