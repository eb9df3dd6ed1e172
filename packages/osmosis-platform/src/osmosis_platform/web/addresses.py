"""The state of a list in its address: what was chosen, and nothing of what was not."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode


def query_of(values: Mapping[str, str], **defaults: str) -> str:
    """The beginning of an address's query: empty, or `status=failed&`. Empty values and those at their default are left out."""
    chosen = {key: value for key, value in values.items() if value and value != defaults.get(key)}
    return f"{urlencode(chosen)}&" if chosen else ""
