"""Which rows of a file a local evaluation takes."""

import re
from collections.abc import Sequence
from itertools import pairwise

_PART = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")


def parse_rows(text: str, total: int) -> list[int]:
    """Row indices of a selector such as ``0-9,12``, ascending and without repeats.

    Raises:
        ValueError: a part is no number or range, or lies outside a file of ``total`` rows.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is neither a row number nor a range such as 10-20")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part.strip()!r} ends before it begins")
        if last >= total:
            raise ValueError(f"row {last} is not in the dataset: its rows are 0 to {total - 1}")
        chosen.update(range(first, last + 1))
    return sorted(chosen)


def selector(indices: Sequence[int]) -> str:
    """The selector of ascending row indices."""
    parts: list[str] = []
    start = 0
    ends = [i + 1 for i, (a, b) in enumerate(pairwise(indices)) if b != a + 1]
    for end in [*ends, len(indices)] if indices else []:
        first, last = indices[start], indices[end - 1]
        parts.append(f"{first}-{last}" if last > first else f"{first}")
        start = end
    return ",".join(parts)
