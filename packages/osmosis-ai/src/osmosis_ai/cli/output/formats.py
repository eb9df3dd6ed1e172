"""Values as people read them."""

import math
from datetime import datetime
from typing import Any, TypeGuard

MISSING = "–"
_UNITS = ("B", "KB", "MB", "GB", "TB")


def text(value: Any) -> str:
    """The value as text, or a dash when there is none."""
    return MISSING if value is None or value == "" else str(value)


def date(value: Any, *, seconds: bool = False) -> str:
    """An ISO date in local time, such as ``2026-07-01 10:00 AM UTC``; text without a zone is shown as it is."""
    if not value:
        return MISSING
    moment = _moment(value)
    if moment is None:
        return str(value) if seconds else str(value)[:10]
    local = moment.astimezone()
    clock = local.strftime("%I:%M:%S %p" if seconds else "%I:%M %p").lstrip("0")
    return f"{local:%Y-%m-%d} {clock} {local.tzname()}"


def day(value: Any) -> str:
    """The date alone: ``YYYY-MM-DD``."""
    moment = _moment(value) if value else None
    return text(value and str(value)[:10]) if moment is None else f"{moment.astimezone():%Y-%m-%d}"


def size(count: Any) -> str:
    """Bytes in steps of 1024: ``256 B``, ``1.2 KB``."""
    if not isinstance(count, int | float):
        return MISSING
    number, unit = float(count), 0
    while round(number, 1) >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{count:.0f} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def reward(value: Any) -> str:
    """Two decimals; powers of ten from a million on."""
    if not is_number(value):
        return MISSING
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.4g}"


def percent(value: Any) -> str:
    """A share of 1 as percent with one decimal."""
    return f"{value * 100:.1f}%" if is_number(value) else MISSING


def count(value: Any) -> str:
    """With a thousands separator."""
    return f"{value:,}" if is_number(value) else MISSING


def token(status: Any) -> str:
    """A status in a list: ``[running]``."""
    return f"[{status}]" if status else MISSING


def title(status: Any) -> str:
    """A status in a detail: ``Running``."""
    return str(status).replace("_", " ").title() if status else MISSING


def progress(completed: Any, total: Any, unit: str) -> str:
    """``3 / 10 steps``; completed is kept within 0 and total."""
    if not is_number(completed) or not is_number(total):
        return MISSING
    return f"{max(0, min(completed, total)):,} / {total:,} {unit}"


def duration(seconds: float | None) -> str:
    """``12.5s``, ``2m 5s``, ``3h 4m``, ``1d 2h``."""
    if seconds is None:
        return MISSING
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for step, large, small, part in ((86400, "d", "h", 3600), (3600, "h", "m", 60), (60, "m", "s", 1)):
        if whole >= step:
            rest = whole % step // part
            return f"{whole // step}{large}" + (f" {rest}{small}" if rest else "")
    return f"{whole}s"


def elapsed(started: Any, completed: Any) -> float | None:
    """Seconds between two ISO dates; until now when there is no end; None when it cannot be told."""
    start = _moment(started) if started else None
    if start is None:
        return None
    end = _moment(completed) if completed else datetime.now(start.tzinfo)
    return max(0.0, (end - start).total_seconds()) if end is not None else None


def age(value: Any) -> str:
    """How long ago an ISO date was: ``just now``, ``5m ago``, ``2d ago``."""
    seconds = elapsed(value, None)
    if seconds is None:
        return MISSING
    for step, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= step:
            return f"{int(seconds // step)}{letter} ago"
    return "just now"


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number that is no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
