"""Configs of runs as text: written from a form or an earlier run, and read with the parser of the command line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.config import ConfigError, ConfigSource, check_config, parse_source
from osmosis_ai.config.issues import issue_line
from osmosis_ai.config.schema import EXPERIMENT, SECTIONS, Key, RunKind
from osmosis_platform.errors import PlatformError
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.service import Kind

CONFIG_KIND: dict[Kind, RunKind] = {"eval": "eval", "train": "training"}
_LINE = re.compile(r"\bline (\d+)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a config; `line` counts from 1 and is None where no line is to blame."""

    message: str
    line: int | None = None


class BadConfig(Exception):
    """A config that the parser or the platform refuses, with every problem that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


def read_config(kind: Kind, text: str) -> tuple[ConfigSource, dict[str, Any]]:
    """The text's source and the body of a submit request. Raises BadConfig."""
    try:
        source = parse_source(Path(f"{CONFIG_KIND[kind]}.toml"), text)
        return source, check_config(source, CONFIG_KIND[kind]).request_body()
    except ConfigError as error:
        lines = error.message.split("\n")
        more = [line.removeprefix("  - ") for line in lines[1:]] if lines[0].endswith(":") else lines
        found = [_problem(line, error.details.get("line")) for line in more]
        also = [
            Problem(issue_line(problem).removeprefix("  - "), problem.get("line")) for problem in error.also
        ]
        raise BadConfig([*found, *also]) from error


def refused(source: ConfigSource, error: PlatformError) -> BadConfig:
    """What the platform refused about a config that could be read, at the lines of the keys that it names."""
    found = [(issue["key"], f"{issue['key']}: {issue['message']}") for issue in error.issues]
    if not found:
        found = [(error.field or "", error.message)]
    return BadConfig([Problem(text, source.lines.of(key)) for key, text in found])


def _problem(text: str, fallback: int | None) -> Problem:
    found = _LINE.search(text)
    return Problem(text, int(found[1]) if found else fallback)


def write_config(kind: Kind, values: Mapping[str, str], secrets: list[str]) -> str:
    """The config that a form's fields describe: `values` by dotted key, empty ones are left out.

    A value that is not of its key's type is written as text, so that the parser says what it has to be.
    """
    sections: dict[str, dict[str, Any]] = {"experiment": {}}
    for key in EXPERIMENT:
        value = values.get(f"experiment.{key.name}", "").strip()
        if value or key.required:
            sections["experiment"][key.name] = value
    for section, keys in SECTIONS[CONFIG_KIND[kind]].items():
        sections[section] = {
            key.name: _typed(key, value)
            for key in keys
            if (value := values.get(f"{section}.{key.name}", "").strip())
        }
    if kind == "eval" or secrets:
        sections["secrets"] = {"required": secrets}
    return _document(sections)


def config_of(run: Run) -> str:
    """The config of an earlier run, without what is at its default. Secret values that were given for it only are not known any more."""
    kind = CONFIG_KIND[run.kind]  # type: ignore[index]
    sections: dict[str, dict[str, Any]] = {"experiment": run.config.get("experiment", {})}
    for section, keys in SECTIONS[kind].items():
        given = run.config.get(section, {})
        sections[section] = {
            key.name: given[key.name]
            for key in keys
            if given.get(key.name) not in (None, {}) and given[key.name] != key.default
        }
    sections["env"] = run.env
    if run.kind == "eval" or run.secret_names:
        sections["secrets"] = {"required": run.secret_names}
    return _document(sections)


def values_of(run: Run) -> dict[str, str]:
    """The fields that describe an earlier run, by dotted key; those at their default are left out."""
    document = tomllib.loads(config_of(run))
    return {
        f"{section}.{key}": str(value).lower() if isinstance(value, bool) else str(value)
        for section in ("experiment", *SECTIONS[CONFIG_KIND[run.kind]])  # type: ignore[index]
        for key, value in document.get(section, {}).items()
        if not isinstance(value, dict)
    }


def _typed(key: Key, text: str) -> Any:
    if key.type == "bool" and text in ("true", "false"):
        return text == "true"
    try:
        if key.type == "int":
            return int(text)
        if key.type == "float":
            return float(text)
    except ValueError:
        pass
    return text


def _document(sections: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, table in sections.items():
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        nested = {f"{name}.{key}": value for key, value in table.items() if isinstance(value, dict) and value}
        if plain:
            parts.append(_table(name, plain))
        parts += [_table(path, value) for path, value in nested.items()]
    return "\n".join(parts)


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """A value as TOML 1.0: its basic strings are JSON's, except that DEL has to be escaped too."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
