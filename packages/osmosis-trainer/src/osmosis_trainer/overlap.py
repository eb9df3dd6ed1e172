"""Learning and collecting at the same time ([advanced] max_staleness = 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from osmosis_trainer.metrics import Stopwatch


async def side_by_side[Learned, Collected](
    learning: Coroutine[Any, Any, Learned], collecting: Coroutine[Any, Any, Collected], watch: Stopwatch
) -> tuple[Learned, Collected]:
    """Await both. When one fails the other is cancelled and waited for, then the error is raised.

    Time in which only the collecting went on is added to the part `wait`.
    """
    one, other = asyncio.create_task(learning), asyncio.create_task(collecting)
    try:
        await asyncio.wait({one, other}, return_when=asyncio.FIRST_COMPLETED)
        if not other.done():
            learned = await one
            with watch.part("wait"):
                return learned, await other
        collected = await other
        return await one, collected
    finally:
        for task in (one, other):
            task.cancel()
        await asyncio.gather(one, other, return_exceptions=True)
