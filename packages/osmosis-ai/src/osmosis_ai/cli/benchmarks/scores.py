"""Scores of benchmark runs as people read them."""

from collections.abc import Callable, Sequence
from typing import Any

from osmosis_ai.cli.output import formats

_DECIMAL_FROM = 100  # attempts from which an interval is exact enough for a decimal
SEPARATOR = " · "
Entry = dict[str, Any]


def pass_at_1(entry: Entry) -> str | None:
    """``pass@1 61.2% (58.0–64.3)``; without decimals in the interval of few attempts."""
    score = entry.get("pass_at_1")
    if formats.is_number(score):
        return f"pass@1 {formats.percent(score)}"
    if not isinstance(score, dict) or not formats.is_number(score.get("value")):
        return None
    text = f"pass@1 {formats.percent(score['value'])}"
    low, high, attempts = score.get("ci_low"), score.get("ci_high"), score.get("n")
    if not formats.is_number(low) or not formats.is_number(high):
        return text
    decimals = 1 if formats.is_number(attempts) and attempts >= _DECIMAL_FROM else 0
    return f"{text} ({low * 100:.{decimals}f}–{high * 100:.{decimals}f})"


def deepest_pass_at_k(entry: Entry) -> str | None:
    """``pass@5 80.0%``: the last of the list, unless that is pass@1."""
    scores = entry.get("pass_at_k")
    last = scores[-1] if isinstance(scores, list) and scores else None
    if not isinstance(last, dict) or not formats.is_number(last.get("value")) or last.get("k") in (None, 1):
        return None
    return f"pass@{last['k']} {formats.percent(last['value'])}"


def cost(entry: Entry) -> str | None:
    """``$0.42/task``."""
    return f"${entry['cost_per_task']:.2f}/task" if formats.is_number(entry.get("cost_per_task")) else None


def seconds(entry: Entry) -> str | None:
    """``95s/task``."""
    mean = entry.get("mean_duration_seconds")
    return f"{mean:.0f}s/task" if formats.is_number(mean) else None


def tokens(entry: Entry) -> str | None:
    """``12.3k tokens/task``."""
    each = entry.get("tokens_per_task")
    if not formats.is_number(each):
        return None
    short = f"{each / 1000:.1f}k" if each >= 1000 else f"{each:.0f}"
    return f"{short} tokens/task"


METRICS: tuple[tuple[Callable[[Entry], str | None], str], ...] = (
    (pass_at_1, "pass@1 –"),
    (deepest_pass_at_k, "pass@k –"),
    (cost, "$–/task"),
    (seconds, "–s/task"),
    (tokens, "– tokens/task"),
)


def metric_cells(entries: Sequence[Entry]) -> list[list[str]]:
    """The metrics of each entry; a metric that nobody has is left out for all, a missing one is a dash."""
    known = [pair for pair in METRICS if any(pair[0](entry) is not None for entry in entries)]
    return [[metric(entry) or missing for metric, missing in known] for entry in entries]


def leaderboard_lines(entries: Sequence[Entry]) -> list[str]:
    """One line per entry, best first, and a footnote when several share the first rank."""
    if not entries:
        return ["No scores yet: the board fills when runs finish."]
    lines: list[str] = []
    for entry, cells in zip(entries, metric_cells(entries), strict=True):
        rank = f"#{formats.text(entry.get('rank'))}{'*' if entry.get('tied') else ''}"
        agent = formats.text(entry.get("model"))
        if entry.get("harness"):
            agent += f" ({entry['harness']})"
        if entry.get("task_set") and entry["task_set"] != "full":
            agent += f" [{entry['task_set']}]"
        lines.append(SEPARATOR.join([rank, agent, *cells]))
    if any(entry.get("tied") for entry in entries):
        lines.append("* tied for first: the difference to the best entry is within chance.")
    return lines
