"""What others wrote loses terminal codes and cannot turn a line around."""

from __future__ import annotations

import pytest

from osmosis_platform.web.text import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("bell\x07 and null\x00", "bell and null"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("שלום 你好 é", "שלום 你好 é"),
        ("[31m stays", "[31m stays"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown
