"""Entry point of the ``osmosis`` program."""

import sys

from osmosis_ai.cli.output.mode import Mode, set_mode, split_mode
from osmosis_ai.consts import PACKAGE_NAME, PACKAGE_VERSION


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    arguments, modes = split_mode(list(sys.argv[1:] if argv is None else argv))
    set_mode(modes[0] if modes else Mode.RICH)
    if arguments[:1] in (["-V"], ["--version"]):
        sys.stdout.write(f"{PACKAGE_NAME} {PACKAGE_VERSION}\n")
        return 0
    # Everything else needs the command tree; the version does not wait for it.
    from osmosis_ai.cli.running import run

    return run(arguments, conflicting_modes=len(set(modes)) > 1)


if __name__ == "__main__":
    sys.exit(main())
