"""Running a command and turning what it raises into one error and an exit status."""

import errno
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from osmosis_ai.cli.dotenv import load_nearest_env
from osmosis_ai.cli.errors import (
    ERROR_CODES,
    EXIT_ERROR,
    EXIT_OK,
    EXIT_USAGE,
    CLIError,
)
from osmosis_ai.cli.output.emit import emit
from osmosis_ai.cli.output.messages import notice, show_error, write_error_line
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.output.visible import visible
from osmosis_ai.cli.tree import Interrupted, command_label, root
from osmosis_ai.errors import OsmosisError
from osmosis_ai.extras import MissingExtraError

_INTERNAL_TEXT = "An unexpected internal error occurred."
_TRACEBACK_TEXT = "Set OSMOSIS_DEBUG=1 for a traceback."
_SIGNS_OF_A_BAD_ANSWER = (KeyError, TypeError, AttributeError, IndexError, ValueError)
_REFUSED_BY_THE_DISK = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_EXTRA_ARGUMENT = re.compile(r"^Got unexpected extra arguments? \(")


def run(arguments: list[str], *, conflicting_modes: bool = False) -> int:
    """Parse and run; print the result or the error; return the exit status.

    Raises:
        KeyboardInterrupt: the user broke off, also at a question.
    """
    label = command_label(arguments)
    try:
        _require_text(arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _run(arguments, conflicting_modes)
    except click.UsageError as error:
        show_error(label, "VALIDATION", _usage_text(error), {})
        return EXIT_USAGE
    except (click.Abort, Interrupted) as stop:
        raise KeyboardInterrupt from stop  # the entry point answers all of them
    except OsmosisError as error:
        return _show(label, error)
    except MissingExtraError as error:
        show_error(label, "VALIDATION", str(error), {"module": error.name})
        return EXIT_ERROR
    except BrokenPipeError:
        # The reader of a pipe went away; nobody is left to tell. Keeps the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        return _show_unexpected(label, error)


def _run(arguments: list[str], conflicting_modes: bool) -> int:
    if conflicting_modes:
        raise CLIError("Conflicting output format selectors: use either --json or --plain.")
    load_nearest_env(_current_folder())
    if not arguments and mode() is Mode.JSON:
        raise CLIError("No command given; run 'osmosis --help' for the commands.", code="INTERNAL")
    result: Any = root.main(arguments, prog_name="osmosis", standalone_mode=False)
    if isinstance(result, int):
        return result  # help
    if result is None:
        raise CLIError("The command ended without a result.", code="INTERNAL")
    emit(result)
    return result.exit_code if isinstance(result, OperationResult) else EXIT_OK


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise CLIError("The current folder was removed. Change into another one and try again.") from None


def _require_text(arguments: list[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise CLIError(
                f"{os.fsencode(argument)!r} is not UTF-8 text. Rename it, or type the name again.",
                exit_code=EXIT_USAGE,
            ) from None


def _usage_text(error: click.UsageError) -> str:
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"Missing parameter: {error.param.name}"
    return _EXTRA_ARGUMENT.sub("Got unexpected extra argument(s) (", error.format_message())


def _show(label: str, error: OsmosisError) -> int:
    code, details = error.code, error.details
    if code not in ERROR_CODES:
        code, details = "VALIDATION", {"reason": error.code, **details}
    show_error(label, code, _with_hint(error), details)
    for line in error.further_lines():
        notice(line)
    if code == "AUTH_REQUIRED" and "platform_url" in details and mode() is Mode.RICH:
        notice(f"The platform is {details['platform_url']}. Set OSMOSIS_PLATFORM_URL for another one.")
    return error.exit_code if isinstance(error, CLIError) else EXIT_ERROR


def _with_hint(error: OsmosisError) -> str:
    """The message; for a repository that the platform does not know, with what may help."""
    if "platform_code" in error.details:
        from osmosis_ai.cli.renamed import rename_hint
        from osmosis_ai.platform.errors import PlatformError

        hint = rename_hint(error) if isinstance(error, PlatformError) else None
        return f"{error.message}\n{hint}" if hint else error.message
    return error.message


def _show_unexpected(label: str, error: Exception) -> int:
    """An internal error; but where the disk refused, or an answer of the platform lacks what is needed, say so."""
    if os.environ.get("OSMOSIS_DEBUG") == "1":
        import traceback

        write_error_line(visible("".join(traceback.format_exception(error)).rstrip("\n")))
    if isinstance(error, OSError) and error.errno in _REFUSED_BY_THE_DISK:
        where = f"{error.filename}: " if error.filename else ""
        show_error(label, "VALIDATION", f"A file cannot be used. {where}{error.strerror}.", {})
        return EXIT_ERROR
    text, request = _INTERNAL_TEXT, _answered_request()
    if request is not None and isinstance(error, _SIGNS_OF_A_BAD_ANSWER):
        text += (
            f" It came with the platform's answer to {request}, which this version does not understand: platform and program "
            "may be of different versions."
        )
    show_error(label, "INTERNAL", f"{text} {_TRACEBACK_TEXT}", {"exception_type": type(error).__name__})
    return EXIT_ERROR


def _answered_request() -> str | None:
    """The last request that the platform answered; None in commands that asked nothing."""
    client = sys.modules.get("osmosis_ai.platform.api.client")
    request: str | None = client.PlatformClient.answered if client is not None else None
    return request
