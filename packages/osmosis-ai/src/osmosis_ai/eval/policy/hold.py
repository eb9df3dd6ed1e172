"""Holding a model call while the policy is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from osmosis_ai.rollout.controller.chat import ChatError, TransientChatError

logger = logging.getLogger(__name__)

HOLD_SEC = 120.0

_BACKOFF_START, _BACKOFF_END = 0.25, 10.0


async def hold[Answer](call: Callable[[], Awaitable[Answer]], *, limit_s: float = HOLD_SEC) -> Answer:
    """Repeat ``call`` while it raises :class:`TransientChatError`, at most for ``limit_s`` seconds.

    What is left after that is an infrastructure failure that the agent's client must not repeat on its own: it would
    hold the rollout three times as long.
    """
    loop = asyncio.get_running_loop()
    give_up_at, delay = loop.time() + limit_s, _BACKOFF_START
    while True:
        try:
            return await call()
        except TransientChatError as error:
            wait = min(max(error.retry_after or 0.0, delay), max(limit_s / 4, delay))
            if loop.time() + wait > give_up_at:
                raise ChatError(
                    f"no answer within {limit_s:g} s, last: {error.message}",
                    status=502,
                    code=error.error_code,
                    infrastructure=True,
                ) from error
            logger.info("repeating a model call in %.1f s: %s", wait, error.message)
            await asyncio.sleep(wait)
            delay = min(delay * 2, _BACKOFF_END)
