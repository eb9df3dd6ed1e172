"""Text of others on a terminal: control characters are shown, never sent.

What a rollout prints, names and error texts come from elsewhere. An escape sequence in them could rewrite what is on the screen,
set the clipboard or the title of the window; a directional override makes a line read in another order than it is stored.
"""

_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
# Explicit directional formatting (Unicode Standard Annex 9, section 2), as the dashboard shows it.
_DIRECTIONS = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = (
    {code: f"\\x{code:02x}" for code in _CONTROLS}
    | {code: f"\\u{code:04x}" for code in _DIRECTIONS}
    | {0x09: "    "}
)
_BLOCK = {code: shown for code, shown in _VISIBLE.items() if code != 0x0A}
_LINE = _VISIBLE | {0x0A: " "}
_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def visible(text: str) -> str:
    r"""The text with C0 (but newline), DEL and C1 characters as ``\x1b``, directional overrides as ``\u202e``; a tab becomes spaces."""
    return text.translate(_BLOCK)


def visible_line(text: str) -> str:
    """The same on one line: newlines become spaces."""
    return text.translate(_LINE)


def escaped_json(document: str) -> str:
    r"""A JSON document with DEL and C1 as ``\u009b``: JSON allows them raw in strings, a terminal obeys them."""
    return document.translate(_JSON)
