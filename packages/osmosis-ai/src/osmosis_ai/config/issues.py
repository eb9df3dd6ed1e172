"""Problems found in a config, collected so that the user sees all of them at once."""

import difflib
from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict


class Issue(TypedDict):
    """One problem. ``key`` is a dotted path such as ``training.lr``; ``key_correction`` is the path probably meant.

    ``line`` is the line of the key in the file, from 1, where a file is known.
    """

    key: str
    message: str
    key_correction: NotRequired[str]
    line: NotRequired[int]


def issue(key: str, message: str, key_correction: str | None = None) -> Issue:
    """An issue; the correction is left out when there is none."""
    found = Issue(key=key, message=message)
    if key_correction is not None:
        found["key_correction"] = key_correction
    return found


def issue_line(found: Issue) -> str:
    """The issue as one line of a message: ``  - key: text (did you mean 'x'?)``."""
    correction = found.get("key_correction")
    return f"  - {found['key']}: {found['message']}" + (
        f" (did you mean '{correction}'?)" if correction else ""
    )


def placed_line(found: Issue) -> str:
    """As `issue_line`, with the line in the file where it is known and not told yet."""
    line = found.get("line")
    told = line is None or f"line {line}" in found["message"]
    return issue_line(found) if told else f"{issue_line(found)} (line {line})"


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The closest candidate, or None when nothing is close."""
    matches = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return matches[0] if matches else None


def suggest_key(section: str, name: str, sections: dict[str, list[str]]) -> str | None:
    """The dotted path probably meant: the same key of another section, else a close key of the same section."""
    owners = [other for other, names in sections.items() if name in names]
    if owners:
        return f"{owners[0]}.{name}"
    close = suggest(name, sections.get(section, []))
    return f"{section}.{close}" if close is not None else None


def shown(value: Any) -> str:
    """A value as quoted in messages."""
    return repr(value)
