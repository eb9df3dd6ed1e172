"""Fewer points for charts, without losing a spike."""

from __future__ import annotations

from collections.abc import Sequence


def decimate(values: Sequence[float], limit: int) -> list[int]:
    """Ascending indices of at most `limit` values that keep the look of the line.

    Up to `limit` values all stay. Beyond, the first and the last stay, and of each of the equal bins between them the least
    and the greatest: every extreme of the data is in the answer. `limit` must be at least 4.
    """
    if limit < 4:
        raise ValueError(f"limit must be at least 4, got {limit}")
    count = len(values)
    if count <= limit:
        return list(range(count))
    inner = list(values[1:-1])
    bins = (limit - 2) // 2
    kept = [0]
    for number in range(bins):
        start, end = number * len(inner) // bins, (number + 1) * len(inner) // bins
        part = inner[start:end]
        low, high = start + part.index(min(part)), start + part.index(max(part))
        kept.extend(sorted({low + 1, high + 1}))
    kept.append(count - 1)
    return kept
