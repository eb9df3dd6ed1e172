"""Several pieces of work whose results only count as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together[T](works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in the order given; when one fails the others are cancelled and its error is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
