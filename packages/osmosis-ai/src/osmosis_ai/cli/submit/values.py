"""Values of the secrets that a config requires, from this machine."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from osmosis_ai.cli.dotenv import parse_env
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.mode import interactive
from osmosis_ai.cli.prompts import hidden_input

FLAG = "--secrets-file"
_LINE = re.compile(r"\s*(?:#.*|(?:export\s+)?[A-Za-z_][A-Za-z0-9_]*\s*=.*)?")


def read_secrets_file(path: str) -> dict[str, str]:
    """Names and values of a dotenv file; ``-`` is standard input.

    Raises:
        CLIError: it cannot be read, or a line is no assignment. The error names the line, never its content.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise CLIError(f"{FLAG}: cannot read {path}: {error.strerror}.", details={"path": path}) from error
    except UnicodeDecodeError as error:
        raise CLIError(f"{FLAG}: {path} is not UTF-8 text.", details={"path": path}) from error
    for number, line in enumerate(text.splitlines(), 1):
        if not _LINE.fullmatch(line):
            raise CLIError(
                f"{FLAG}: line {number} of {path} is not NAME=VALUE.", details={"path": path, "line": number}
            )
    return parse_env(text)


def values_of_file(names: Sequence[str], secrets_file: str | None) -> dict[str, str]:
    """The values that a file gives for some of the names; other lines of it are not used.

    Raises:
        CLIError: the file cannot be used.
    """
    given = read_secrets_file(secrets_file) if secrets_file is not None else {}
    return {name: given[name] for name in names if given.get(name)}


def secret_values(names: Sequence[str], secrets_file: str | None) -> dict[str, str]:
    """The value of each secret: from the file, else the environment, else typed without being shown.

    Raises:
        CLIError: values are missing and nobody can type them (``INTERACTIVE_REQUIRED``).
    """
    given = read_secrets_file(secrets_file) if secrets_file is not None else {}
    values = {name: given.get(name) or os.environ.get(name) or "" for name in names}
    missing = [name for name in names if not values[name]]
    if missing and interactive():
        for name in missing:
            values[name] = hidden_input(f"Value of {name}") or ""
        missing = [name for name in missing if not values[name]]
    if missing:
        raise CLIError(
            f"No value for the secret(s) {', '.join(missing)}: set them in the environment, or give a file of NAME=VALUE "
            f"lines with {FLAG}.",
            code="INTERACTIVE_REQUIRED",
            details={"missing": missing, "flags": [FLAG]},
        )
    return values
