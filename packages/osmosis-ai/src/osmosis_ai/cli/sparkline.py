"""Series of numbers as small plots in a terminal."""

from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
MIN_WIDTH = 8


def sparkline(points: Sequence[tuple[int, float]], width: int) -> str:
    """One character per point in order of step, thinned evenly with both ends kept, then ``first -> last``."""
    values = [value for _, value in sorted(points)]
    if not values:
        return "No data"
    width = max(width, MIN_WIDTH)
    shown = values
    if len(values) > width:
        shown = [values[round(index * (len(values) - 1) / (width - 1))] for index in range(width)]
    low, high = min(shown), max(shown)
    span = high - low
    marks = "".join(_LEVELS[0 if span == 0 else min(7, int((value - low) / span * 8))] for value in shown)
    return f"{marks}  {values[0]:.4g} -> {values[-1]:.4g}"


def bar(share: float, width: int) -> str:
    """A share of 1 as a bar of ``width`` characters, exact to an eighth of one."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    filled = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return filled + "░" * (width - len(filled))
