"""Text that somebody else wrote, made safe to look at: terminal codes go, and nothing can turn a line around."""

from __future__ import annotations

import re

from markupsafe import Markup

# ECMA-48 control sequences (colours, cursor moves) and operating system commands (titles, links), as terminals know them.
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Explicit directional formatting (Unicode Standard Annex 9, section 2): text after it reads in another order than it is stored.
_DIRECTION = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """`text` without terminal codes and control characters; directional overrides are spelled out (`\\u202e`)."""
    text = _CONTROL.sub("", _TERMINAL.sub("", text))
    return _DIRECTION.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain_output(value: object) -> object:
    """What Jinja prints of an expression: text becomes plain, markup (made of plain parts) stays as it is."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
