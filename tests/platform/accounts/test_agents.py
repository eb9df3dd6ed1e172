"""Browsers are told by name and system, whatever they call themselves besides."""

from __future__ import annotations

import pytest

from osmosis_platform.accounts.agents import browser_name

MOZILLA = "Mozilla/5.0"
WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (f"{MOZILLA} (X11; Linux x86_64) {WEBKIT} Chrome/141.0.0.0 Safari/537.36", "Chrome on Linux"),
        (f"{MOZILLA} (X11; Linux x86_64) {WEBKIT} HeadlessChrome/141.0.0.0 Safari/537.36", "Chrome on Linux"),
        (f"{MOZILLA} (Windows NT 10.0; Win64; x64) {WEBKIT} Chrome/141.0 Safari/537.36 Edg/141.0", "Edge on Windows"),
        (f"{MOZILLA} (Macintosh; Intel Mac OS X 14.7; rv:143.0) Gecko/20100101 Firefox/143.0", "Firefox on macOS"),
        (f"{MOZILLA} (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15", "Safari on macOS"),
        (f"{MOZILLA} (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/141.0 Mobile/15E148 Safari/604.1", "Chrome on iOS"),
        (f"{MOZILLA} (Linux; Android 15; Pixel 9) {WEBKIT} Chrome/141.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.14.1", "curl"),
        ("<script>alert(1)</script>", "<script>alert"),
        ("/", "Unknown browser"),
        ("", "Unknown browser"),
        (None, "Unknown browser"),
    ],
)  # fmt: skip
def test_a_browser_is_named(agent: str | None, name: str) -> None:
    assert browser_name(agent) == name
