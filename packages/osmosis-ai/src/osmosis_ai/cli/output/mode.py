"""How a command talks: to a person (rich), to a shell (plain) or to a program (json)."""

import sys
from enum import StrEnum


class Mode(StrEnum):
    """Output mode; chosen by ``--plain`` or ``--json`` anywhere before ``--``."""

    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"


_current = Mode.RICH


def mode() -> Mode:
    """The mode of the running command."""
    return _current


def set_mode(chosen: Mode) -> None:
    """Choose the mode, before anything is printed."""
    global _current
    _current = chosen


def interactive() -> bool:
    """Whether a person can answer: rich mode and a terminal as standard input."""
    return _current is Mode.RICH and sys.stdin is not None and sys.stdin.isatty()


def split_mode(argv: list[str]) -> tuple[list[str], list[Mode]]:
    """The arguments without mode flags, and the flags in order. Flags after ``--`` are data."""
    end = argv.index("--") if "--" in argv else len(argv)
    flags = {"--json": Mode.JSON, "--plain": Mode.PLAIN}
    chosen = [flags[token] for token in argv[:end] if token in flags]
    return [token for token in argv[:end] if token not in flags] + argv[end:], chosen
