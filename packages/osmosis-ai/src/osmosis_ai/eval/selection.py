"""Which rows an evaluation looks at."""

import random


def select_rows(total: int, *, limit: int | None, seed: int) -> list[int]:
    """Row indices in ascending order: the first ``limit``, or a random tenth (at least one row) when it is None.

    The sample depends on ``seed`` and ``total`` only, so that two runs over the same dataset look at the same rows and can
    be compared pairwise.
    """
    if limit is not None:
        return list(range(min(limit, total)))
    if total == 0:
        return []
    count = max(1, round(total * 0.1))
    return sorted(random.Random(f"rows:{seed}").sample(range(total), count))
