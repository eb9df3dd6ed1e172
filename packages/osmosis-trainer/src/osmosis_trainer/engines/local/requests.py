"""One sampling request on its way through the sampler, and how its tokens get back to the event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from osmosis_trainer.engines.local.adapters import LoraWeights
from osmosis_trainer.engines.protocol import Completion, SamplingParams

TokenCallback = Callable[[int, float], None]


@dataclass(eq=False, slots=True)
class Request:
    """State of one request. Everything but `cancelled` is touched by the sampler thread only."""

    prompt: list[int]
    params: SamplingParams
    room: int  # new tokens that fit: max_tokens, or less when the context ends earlier
    weights: LoraWeights | None
    policy_version: int
    uniforms: random.Random
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Completion]
    on_token: TokenCallback | None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    slot: int = -1
    cancelled: bool = False

    @property
    def owner(self) -> tuple[str | None, int]:
        """Whose keys this request computes: adapter name and version, (None, 0) for the base model."""
        return (None, 0) if self.weights is None else self.weights.key

    @property
    def last_token(self) -> int:
        """What the next token follows: the last one sampled, or the prompt's."""
        return self.tokens[-1] if self.tokens else self.prompt[-1]

    def completion(self, finish_reason: str) -> Completion:
        """The finished result."""
        return Completion(
            token_ids=self.tokens,
            logprobs=self.logprobs,
            finish_reason="stop" if finish_reason == "stop" else "length",
            policy_version=self.policy_version,
            cached_tokens=self.cached_tokens,
        )


class Outbox:
    """Collects what a step produced and wakes each event loop once, not once per token."""

    def __init__(self) -> None:
        self._letters: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}

    def token(self, request: Request, token: int, logprob: float) -> None:
        """Announce one token to the request's callback, if it has one."""
        if request.on_token is not None:
            callback = request.on_token
            self._post(request, lambda: _announce(request.future, callback, token, logprob))

    def result(self, request: Request, completion: Completion) -> None:
        """Fulfil the request."""
        self._post(request, lambda: None if request.future.done() else request.future.set_result(completion))

    def error(self, request: Request, error: BaseException) -> None:
        """Fail the request."""
        self._post(request, lambda: None if request.future.done() else request.future.set_exception(error))

    def _post(self, request: Request, letter: Callable[[], None]) -> None:
        self._letters.setdefault(request.loop, []).append(letter)

    def send(self) -> None:
        """Hand everything over. Requests of a loop that was closed have nobody left to tell."""
        letters, self._letters = self._letters, {}
        for loop, batch in letters.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_open, batch)


def _announce(
    future: asyncio.Future[Completion], callback: TokenCallback, token: int, logprob: float
) -> None:
    if future.done():
        return
    try:
        callback(token, logprob)
    except Exception as error:
        future.set_exception(error)


def _open(letters: list[Callable[[], None]]) -> None:
    for letter in letters:
        letter()
