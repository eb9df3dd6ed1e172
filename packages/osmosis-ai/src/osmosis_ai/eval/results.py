"""What an evaluation adds up to.

Pure functions over finished attempts. Skipped attempts count nowhere; failed ones count as not passed. Rewards are averaged
over graded attempts only.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Z_95 = statistics.NormalDist().inv_cdf(0.975)


def summarise(
    attempts: Iterable[Mapping[str, Any]],
    n: int,
    pass_threshold: float,
    sampled_rows: int,
    total_rows: int,
    duration_ms: float | None = None,
) -> dict[str, dict[str, Any]]:
    """The numbers of an evaluation, finished or not: ``{"results": ..., "metrics": ...}``.

    An attempt has ``row_index``, ``status`` (``success``, ``failed``, ``skipped``), and optionally ``reward``, ``tokens``,
    ``resumed``. ``n`` is the number of attempts per row. ``results`` is what a run detail shows (``pass_at_k`` inside
    ``reward_stats``, a map), ``metrics`` what the metrics endpoint answers (``pass_at_k`` a list). ``results.confidence``
    holds 95 % intervals, each with the name of its method.
    """
    attempts = list(attempts)
    scored = [attempt for attempt in attempts if attempt["status"] != "skipped"]
    rewards = [float(attempt["reward"]) for attempt in scored if attempt.get("reward") is not None]
    passes = [(int(attempt["row_index"]), _passes(attempt, pass_threshold)) for attempt in scored]
    passed = sum(ok for _, ok in passes)
    counts = {
        "graded": len(rewards),
        "passed": passed,
        "failed": sum(attempt["status"] == "failed" for attempt in attempts),
        "skipped": len(attempts) - len(scored),
        "pass_rate": passed / len(scored) if scored else 0.0,
        "pass_threshold": pass_threshold,
    }
    tokens = sum(int(attempt.get("tokens") or 0) for attempt in attempts)
    stats, points = reward_stats(rewards), pass_at_k(passes, n)
    results = {
        "total_runs": len(attempts),
        "sampled_rows": sampled_rows,
        "score": stats["mean"] if stats else None,
        **counts,
        "total_tokens": tokens,
        "total_dataset_rows": total_rows,
        "resumed_count": sum(bool(attempt.get("resumed")) for attempt in attempts),
        "reward_stats": {**stats, **({"pass_at_k": {str(k): p for k, p in points}} if points else {})},
        "confidence": _confidence(scored, passes),
    }
    metrics = {
        "overview": {
            "duration_ms": duration_ms,
            "total_samples": len(attempts),
            "completed_samples": len(scored),
            **counts,
            "tokens_used": tokens,
        },
        "reward_stats": stats or None,
        "pass_at_k": [{"k": k, "value": value} for k, value in points],
    }
    return {"results": results, "metrics": metrics}


def metrics_document(eval_run: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """``metrics.json``: what run it is, and the ``metrics`` of :func:`summarise`, flat."""
    return {
        "eval_run": dict(eval_run),
        "summary": {
            **metrics["overview"],
            "reward_stats": metrics["reward_stats"],
            "pass_at_k": metrics["pass_at_k"],
        },
    }


def _passes(attempt: Mapping[str, Any], threshold: float) -> bool:
    return attempt.get("reward") is not None and float(attempt["reward"]) >= threshold


def reward_stats(rewards: Sequence[float]) -> dict[str, float]:
    """Mean, median, population standard deviation, smallest and largest reward; empty without rewards."""
    if not rewards:
        return {}
    scale = _scale(rewards)
    scaled = [reward / scale for reward in rewards]
    return {
        "mean": statistics.fmean(scaled) * scale,
        "median": float(statistics.median(scaled)) * scale,
        "std": statistics.pstdev(scaled) * scale,
        "min": min(rewards),
        "max": max(rewards),
    }


def _scale(values: Iterable[float]) -> float:
    """1, or a power of two that keeps sums of squares of values beyond 1e150 from overflowing."""
    largest = max(map(abs, values), default=0.0)
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 1e150 else 1.0


def pass_at_k(passes: Iterable[tuple[int, bool]], n: int) -> list[tuple[int, float]]:
    """Unbiased pass@k at k = 1, 2, 4, ... <= n; nothing unless there are at least two points.

    ``passes`` are (row, passed) pairs. A row with m attempts of which c passed contributes ``1 - C(m-c, k) / C(m, k)`` to
    every k <= m (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", section 2.1).
    """
    rows: defaultdict[int, list[bool]] = defaultdict(list)
    for row, ok in passes:
        rows[row].append(ok)
    points: list[tuple[int, float]] = []
    k = 1
    while k <= n:
        values = [
            1.0 - math.comb(len(row) - sum(row), k) / math.comb(len(row), k)
            for row in rows.values()
            if len(row) >= k
        ]
        if values:
            points.append((k, statistics.fmean(values)))
        k *= 2
    return points if len(points) >= 2 else []


def _confidence(
    scored: Sequence[Mapping[str, Any]], passes: Sequence[tuple[int, bool]]
) -> dict[str, dict[str, Any]]:
    graded = [(int(a["row_index"]), float(a["reward"])) for a in scored if a.get("reward") is not None]
    repeated = len({row for row, _ in passes}) < len(passes)
    intervals: dict[str, dict[str, Any]] = {}
    score = clustered_interval(graded)
    if score is not None:
        intervals["score"] = {"low": score[0], "high": score[1], "method": "clustered_normal"}
    if repeated:
        rate = clustered_interval([(row, float(ok)) for row, ok in passes])
        if rate is not None:
            low, high = max(rate[0], 0.0), min(rate[1], 1.0)
            intervals["pass_rate"] = {"low": low, "high": high, "method": "clustered_normal"}
    elif passes:
        low, high = wilson_interval(sum(ok for _, ok in passes), len(passes))
        intervals["pass_rate"] = {"low": low, "high": high, "method": "wilson"}
    return intervals


def wilson_interval(successes: int, total: int) -> tuple[float, float]:
    """95 % interval of a proportion from independent attempts (Wilson 1927), ``total`` > 0."""
    p, z2 = successes / total, Z_95**2
    centre = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = Z_95 / (1 + z2 / total) * math.sqrt(p * (1 - p) / total + z2 / (4 * total**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def clustered_interval(values: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """95 % normal interval of a mean whose values come in (row, value) clusters; None with fewer than two rows.

    Attempts of one row are not independent, so residuals are summed per row before they are squared (Liang and Zeger
    1986; Miller 2024, "Adding Error Bars to Evals"), with the correction G / (G - 1) for G rows. None also where an end
    is beyond the largest float.
    """
    if len({row for row, _ in values}) < 2:
        return None
    scale = _scale(value for _, value in values)
    mean = statistics.fmean(value / scale for _, value in values)
    residuals: defaultdict[int, float] = defaultdict(float)
    for row, value in values:
        residuals[row] += value / scale - mean
    groups = len(residuals)
    variance = sum(r * r for r in residuals.values()) * groups / (groups - 1) / len(values) ** 2
    half = Z_95 * math.sqrt(variance)
    low, high = (mean - half) * scale, (mean + half) * scale
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None
