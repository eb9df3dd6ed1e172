"""What each learner process computes of a step, and how their numbers become those of one learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from osmosis_trainer.engines.protocol import Objective, TrainingRow

_SUMS = ("loss", "tokens", "computed_tokens", "raw_tokens", "micro_batches")
_LARGEST = ("ratio_max", "logprob_gap_max")


def whole_step(rows: Sequence[TrainingRow], objective: Objective) -> Objective:
    """The objective with the trained tokens and rows of all processes: each then weighs its part as part of the whole."""
    trained = [row for row in rows if any(row.mask)]
    return replace(
        objective,
        total_tokens=objective.total_tokens or sum(sum(row.mask) for row in trained) or None,
        total_rows=objective.total_rows or len(trained) or None,
    )


def split_places(rows: Sequence[TrainingRow], parts: int) -> list[list[int]]:
    """The places of the rows of each process: prompt groups stay together, so that their common tokens are computed once,
    and the processes get about the same number of tokens. Depends on the rows alone."""
    groups: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.group, []).append(place)
    sizes = {group: sum(len(rows[i].token_ids) for i in places) for group, places in groups.items()}
    shares: list[list[int]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for group in sorted(groups, key=lambda group: (-sizes[group], group)):
        lightest = loads.index(min(loads))
        shares[lightest] += groups[group]
        loads[lightest] += sizes[group]
    return shares


def merge(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The metrics of one `forward_backward` from those of each process: sums, largest values, means per trained token."""
    tokens = sum(part["tokens"] for part in parts)
    merged: dict[str, float] = {}
    for key in parts[0]:
        if key in _SUMS:
            merged[key] = sum(part[key] for part in parts)
        elif key in _LARGEST:
            merged[key] = max(part[key] for part in parts)
        else:
            merged[key] = sum(part[key] * part["tokens"] for part in parts) / max(tokens, 1.0)
    return merged
