"""A config file that was read, and where in it things stand."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.issues import Issue, issue, issue_line
from osmosis_ai.config.lines import KeyLines

_ISSUE_LINE = re.compile(r"  - ([^\s:]+): ")


@dataclass(frozen=True)
class ConfigSource:
    """A TOML file: its path, text and content."""

    path: Path
    text: str
    document: dict[str, Any]

    @cached_property
    def lines(self) -> KeyLines:
        """Where the keys stand."""
        return KeyLines(self.text)

    def where(self, key: str) -> str:
        """The file, and the line of a key (or of the table that it would be in) when there is one."""
        line = self.lines.of(key)
        return str(self.path) if line is None else f"{self.path}, line {line}"

    def refused(self, message: str, key: str) -> ConfigError:
        """One problem with one key."""
        return ConfigError(message, details=self._details(key), problems=[self.placed(issue(key, message))])

    def all_refused(self, problems: Sequence[tuple[str, str]]) -> ConfigError:
        """Several problems of one stage, each a key and a sentence; one per line."""
        return ConfigError(
            "\n".join(f"{text} ({self.where(key)})" for key, text in problems),
            details=self._details(problems[0][0]),
            problems=[self.placed(issue(key, text)) for key, text in problems],
        )

    def pointed(self, error: ConfigError) -> ConfigError:
        """An error about a value, with the place of its key added."""
        key = str(error.details.get("field", ""))
        return ConfigError(
            f"{error.message} ({self.where(key)})",
            details={**self._details(key), **error.details},
            problems=[self.placed(issue(key, " ".join(error.message.removeprefix(f"{key}: ").split())))],
        )

    def placed(self, found: Issue) -> Issue:
        """An issue with the line of its key."""
        line = self.lines.of(found["key"])
        return found if line is None else {**found, "line": line}

    def _details(self, key: str) -> dict[str, Any]:
        line = self.lines.of(key)
        return {"path": str(self.path), "field": key} | ({} if line is None else {"line": line})

    def with_lines(self, message: str) -> str:
        """A message with lines ``  - key: text``: each gets the line of its key in the file."""
        return "\n".join(self._with_line(text) for text in message.split("\n"))

    def _with_line(self, text: str) -> str:
        found = _ISSUE_LINE.match(text)
        line = self.lines.of(found[1]) if found else None
        return text if line is None else f"{text} (line {line})"

    def invalid(self, kind: str, issues: list[Issue]) -> ConfigError:
        """One error for all collected issues."""
        heading = f"Invalid {kind} config:"
        message = self.with_lines("\n".join([heading, *map(issue_line, issues)]))
        return ConfigError(
            message,
            details={"error": heading.rstrip(":"), "issues": [dict(found) for found in issues]},
            problems=[self.placed(found) for found in issues],
        )


def together(errors: Sequence[ConfigError], further: Sequence[Issue] = ()) -> ConfigError:
    """The first error, with what all others and `further` tell in ``details["also"]``."""
    first, *others = errors
    also = [problem for error in others for problem in error.problems]
    told = {problem["key"] for problem in [*first.problems, *also]}
    also += [found for found in further if found["key"] not in told]
    if also:
        first.add(also)
    return first


def read_source(path: Path) -> ConfigSource:
    """Read a file.

    Raises:
        ConfigError: it is no valid UTF-8 TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"Invalid TOML in {path}: {error}", details={"path": str(path)}) from error
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}", details={"path": str(path)}) from error
    return parse_source(path, text)


def parse_source(path: Path, text: str) -> ConfigSource:
    """A text as if `path` held it; messages name the path, which need not exist.

    Raises:
        ConfigError: it is no valid TOML.
    """
    text = text.replace("\r\n", "\n")
    try:
        return ConfigSource(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"Invalid TOML in {path}: {error}", details={"path": str(path)}) from error
    except RecursionError as error:
        raise ConfigError(
            f"Invalid TOML in {path}: nested too deeply", details={"path": str(path)}
        ) from error
