"""Printing a result on standard output."""

import sys
from typing import Any

from osmosis_ai.cli.output.as_json import result_document, to_line
from osmosis_ai.cli.output.as_text import result_lines
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.output.visible import visible


def emit(result: Result) -> None:
    """Print the result in the current mode.

    Raises:
        ValueError, TypeError: in JSON mode, when the result holds something that is no JSON; nothing is printed then.
    """
    match mode():
        case Mode.JSON:
            sys.stdout.write(to_line(result_document(result)))
        case Mode.PLAIN:
            sys.stdout.write("".join(f"{line}\n" for line in result_lines(result)))
        case Mode.RICH:
            from osmosis_ai.cli.output.as_rich import print_result

            print_result(result)
    sys.stdout.flush()


def emit_line(document: dict[str, Any], text: str) -> None:
    """Print one entry of a stream at once: the object in JSON mode, else the text."""
    sys.stdout.write(to_line(document) if mode() is Mode.JSON else f"{visible(text)}\n")
    sys.stdout.flush()
