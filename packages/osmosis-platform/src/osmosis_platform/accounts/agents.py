"""How a browser is named to its owner: `Chrome on Linux` instead of what it sends about itself."""

from __future__ import annotations

import re

# In this order: most browsers also call themselves what they are compatible with.
_BROWSERS = (
    (r"\bEdg(?:e|A|iOS)?/", "Edge"),
    (r"\b(?:OPR|Opera)/", "Opera"),
    (r"\bSamsungBrowser/", "Samsung Internet"),
    (r"\b(?:Firefox|FxiOS)/", "Firefox"),
    (r"\b(?:HeadlessChrome|Chrome|CriOS|Chromium)/", "Chrome"),
    (r"\bVersion/\S+ .*Safari/", "Safari"),
)
_SYSTEMS = (
    (r"\b(?:iPhone|iPad)\b", "iOS"),
    (r"\bAndroid\b", "Android"),
    (r"\bCrOS\b", "ChromeOS"),
    (r"\bWindows\b", "Windows"),
    (r"\bMac OS X\b|\bMacintosh\b", "macOS"),
    (r"\bLinux\b|\bX11\b", "Linux"),
)
_LONGEST = 40


def browser_name(agent: str | None) -> str:
    """A browser and its system from a User-Agent header (RFC 9110, 10.1.5), or the product that another program names first."""
    product = re.match(r"[^\s/()]+", agent or "")
    if agent is None or product is None:
        return "Unknown browser"
    browser = _first(_BROWSERS, agent) or product[0][:_LONGEST]
    system = _first(_SYSTEMS, agent)
    return f"{browser} on {system}" if system else browser


def _first(patterns: tuple[tuple[str, str], ...], agent: str) -> str | None:
    return next((name for pattern, name in patterns if re.search(pattern, agent)), None)
