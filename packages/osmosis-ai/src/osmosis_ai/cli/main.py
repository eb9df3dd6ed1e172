"""Entry point of the ``osmosis`` program.

Nothing but ``sys`` is imported up here: all further imports happen where Ctrl-C already ends in one line and exit status 130.
"""

import sys

_EXIT_INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _main(arguments)
        if argv is None:
            _let_the_end_be_quiet()
    except KeyboardInterrupt:
        if argv is None:
            _let_the_end_be_quiet()
        status = _interrupted(arguments)
    return status


def _main(arguments: list[str]) -> int:
    from osmosis_ai.cli.output.mode import Mode, set_mode, split_mode
    from osmosis_ai.consts import PACKAGE_NAME, PACKAGE_VERSION

    _replace_closed_streams()
    arguments, modes = split_mode(arguments)
    set_mode(modes[0] if modes else Mode.RICH)
    _print_any_character(json=Mode.JSON in modes[:1])
    if arguments[:1] in (["-V"], ["--version"]):
        sys.stdout.write(f"{PACKAGE_NAME} {PACKAGE_VERSION}\n")
        return 0
    # Everything else needs the command tree; the version does not wait for it.
    from osmosis_ai.cli.running import run

    return run(arguments, conflicting_modes=len(set(modes)) > 1)


def _replace_closed_streams() -> None:
    """A program that was started without a standard stream reads nothing there, and what it writes is lost."""
    import os

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives


def _print_any_character(*, json: bool) -> None:
    r"""JSON is UTF-8 on any terminal; elsewhere a character that the encoding lacks is printed as ``\u2013``."""
    import io

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What no encoding has, half of a surrogate pair, is an escape that JSON knows too.
            stream.reconfigure(encoding="utf-8" if json else None, errors="backslashreplace")


def _interrupted(arguments: list[str]) -> int:
    """Say that the user broke off. The interruption may have come before the mode was set."""
    from osmosis_ai.cli.output.messages import show_interrupted
    from osmosis_ai.cli.output.mode import Mode, set_mode, split_mode
    from osmosis_ai.cli.tree import command_label

    arguments, modes = split_mode(arguments)
    set_mode(modes[0] if modes else Mode.RICH)
    show_interrupted(command_label(arguments))
    return _EXIT_INTERRUPTED


def _let_the_end_be_quiet() -> None:
    """The outcome is decided: another Ctrl-C while the process ends could only add a traceback."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
