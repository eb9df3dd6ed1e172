"""Work on files beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any


async def uninterrupted[T](call: Callable[..., T], *args: Any) -> T:
    """Run file work in a thread to its end, also where the caller is cancelled meanwhile (it then hears of that after)."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
