"""Continuous batching: requests join and leave between any two tokens."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import torch
from torch import Tensor

from osmosis_trainer.engines.local.adapters import LoraWeights
from osmosis_trainer.engines.local.cache import KeyValueCache, SlotLedger
from osmosis_trainer.engines.local.forward import Decoder, Pass
from osmosis_trainer.engines.local.picking import pick
from osmosis_trainer.engines.local.requests import Outbox, Request
from osmosis_trainer.errors import EngineClosedError, EngineError

# Tokens of one prompt pass; longer prompts are computed in pieces so that memory stays bounded.
_PREFILL_TOKENS = 4096
# Slots of a decoding pass, idle ones included, per running request before requests are moved together.
_MOST_IDLE = 1.25
# A request waits one wave when an earlier one of the same wave saves it at least this many tokens.
_WORTH_WAITING = 16


class Sampler:
    """Owns the cache and a thread that runs one step after another while there are requests.

    A step admits what waits and fits, then computes one token for every running request.
    """

    def __init__(self, decoder: Decoder, cache: KeyValueCache, device: torch.device, threads: int) -> None:
        self._decoder, self._cache, self._device = decoder, cache, device
        self._ledger = SlotLedger(cache.slots, whole=cache.recurrent)
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}
        self._forget: set[str] = set()
        self._wake = threading.Condition()
        self._closed = False
        self._outbox = Outbox()
        self.prompt_tokens = self.cached_tokens = self.sampled_tokens = self.passes = 0
        self._threads = threads
        self._thread = threading.Thread(target=self._run, name="osmosis-sampler", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request; its future is resolved on its own event loop."""
        with self._wake:
            if self._closed:
                raise EngineClosedError("the engine is closed; no request can be sampled")
            self._waiting.append(request)
            self._wake.notify()

    def forget(self, name: str) -> None:
        """Drop cached prefixes of adapter `name` before the next step: its weights changed."""
        with self._wake:
            self._forget.add(name)

    def close(self) -> None:
        """End the thread; open requests fail with EngineClosedError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        while True:
            with self._wake:
                while not (self._waiting or self._running or self._closed):
                    self._wake.wait()
                if self._closed:
                    break
                arrived, forget = list(self._waiting), self._forget
                self._forget = set()
            for name in forget:
                self._ledger.forget(name)
            try:
                self._step(arrived)
            except Exception as error:
                # The requests get the error with its cause; the sampler itself goes on with an empty cache.
                failure = EngineError(f"sampling failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._fail_all(failure, arrived)
            self._outbox.send()
        self._fail_all(EngineClosedError("the engine was closed while the request was open"), [])
        self._outbox.send()

    def _fail_all(self, error: EngineError, arrived: list[Request]) -> None:
        with self._wake:
            requests = [*arrived, *self._waiting, *self._running.values()]
            self._waiting.clear()
        self._running.clear()
        self._ledger = SlotLedger(self._cache.slots, whole=self._cache.recurrent)
        for request in requests:
            self._outbox.error(request, error)

    def _step(self, arrived: list[Request]) -> None:
        for slot, request in list(self._running.items()):
            if request.cancelled:
                self._leave(slot)
        if arrived:
            self._admit(arrived)
        if self._running:
            self._decode()

    def _leave(self, slot: int) -> None:
        del self._running[slot]
        self._ledger.release(slot)

    # -- admission ---------------------------------------------------------------------------------------------------

    def _admit(self, arrived: list[Request]) -> None:
        """Start as many waiting requests as there are free slots, in waves: the prompt of a later wave finds the
        prefixes that an earlier one computed."""
        pending = [request for request in arrived if not request.cancelled][: self._ledger.free]
        gone = set(pending) | {request for request in arrived if request.cancelled}
        with self._wake:
            self._waiting = deque(request for request in self._waiting if request not in gone)
        while pending:
            wave, pending = self._next_wave(pending)
            self._prefill(wave)

    def _next_wave(self, pending: list[Request]) -> tuple[list[list[Request]], list[Request]]:
        """Groups of requests with equal prompts to compute together, and the requests that wait for their prefixes."""
        groups: dict[tuple[Any, ...], list[Request]] = {}
        for request in pending:
            groups.setdefault((request.owner, tuple(request.prompt)), []).append(request)
        wave: list[list[Request]] = []
        later: list[Request] = []
        for group in groups.values():
            leader = group[0]
            _, known = self._ledger.best_donor(leader.owner, leader.prompt)
            peers = (other[0] for other in wave if other[0].owner == leader.owner)
            if any(
                self._ledger.reusable(peer.prompt, leader.prompt) >= known + _WORTH_WAITING for peer in peers
            ):
                later.extend(group)
            else:
                wave.append(group)
        return wave, later

    def _prefill(self, groups: list[list[Request]]) -> None:
        starts, wave = [], []
        for group in groups:
            leader = group[0]
            donor, shared = self._ledger.best_donor(leader.owner, leader.prompt)
            # The last prompt token is always computed: its output is the first token's distribution.
            shared = min(shared, len(leader.prompt) - 1)
            self._place(leader, donor, shared)
            if len(group) == 1 and shared == len(leader.prompt) - 1:
                # One token is left: it is computed beside the running requests.
                self._running[leader.slot] = leader
                self.prompt_tokens += 1
                self.cached_tokens += shared
            else:
                wave.append(group)
                starts.append(shared)
        if wave:
            self._compute(wave, starts)

    def _compute(self, wave: list[list[Request]], starts: list[int]) -> None:
        """The prompts of the groups, each from its start on, in as few passes as the budget allows."""
        self._cache.reserve(max(len(group[0].prompt) for group in wave))
        order = sorted(range(len(wave)), key=lambda i: len(wave[i][0].prompt) - starts[i])
        while order:
            # As many prompts as fit the budget when padded to the longest of them.
            count = 1
            while count < len(order) and (count + 1) * _length(wave, starts, order[count]) <= _PREFILL_TOKENS:
                count += 1
            some, order = order[:count], order[count:]
            logits = self._prompt_logits([wave[i][0] for i in some], [starts[i] for i in some])
            for row, i in enumerate(some):
                self._start(wave[i], logits[row : row + 1], starts[i])

    def _place(self, request: Request, donor: int, shared: int) -> None:
        """Give the request a slot whose first `shared` columns hold its prompt's keys."""
        slot = self._ledger.take(donor, shared) if donor >= 0 else self._ledger.take(-1, 0)
        if shared and slot != donor:
            self._cache.copy_prefix(donor, slot, shared)
        request.slot = slot
        request.cached_tokens = shared
        self._ledger.hold(slot, request.owner, list(request.prompt[:shared]))

    def _prompt_logits(self, requests: list[Request], starts: list[int]) -> Tensor:
        """Compute the prompts from `starts` on; returns the logits [n, vocabulary] after the last prompt token."""
        n = len(requests)
        lengths = [len(request.prompt) - start for request, start in zip(requests, starts, strict=True)]
        width, piece = max(lengths), max(1, _PREFILL_TOKENS // n)
        slots = torch.tensor([request.slot for request in requests], device=self._device)
        adapters = self._adapter_groups(requests)
        results: list[Tensor | None] = [None] * n
        for begin in range(0, width, piece):
            end = min(begin + piece, width)
            ids = torch.zeros((n, end - begin), dtype=torch.long)
            columns = torch.full((n, end - begin), self._cache.bin)
            for row, (request, start) in enumerate(zip(requests, starts, strict=True)):
                part = request.prompt[start + begin : start + end]
                ids[row, : len(part)] = torch.tensor(part, dtype=torch.long)
                columns[row, : len(part)] = torch.arange(start + begin, start + begin + len(part))
            span = max(start + min(end, length) for start, length in zip(starts, lengths, strict=True))
            last = torch.tensor([min(max(length - 1 - begin, 0), end - begin - 1) for length in lengths])
            batch = Pass(
                ids.to(self._device), columns.to(self._device), slots, span, last.to(self._device), adapters
            )
            logits = self._decoder.logits(batch, self._cache)
            self.passes += 1
            for row, length in enumerate(lengths):
                if begin < length <= end:
                    results[row] = logits[row]
        self.prompt_tokens += sum(lengths)
        return torch.stack([result for result in results if result is not None])

    def _start(self, group: list[Request], logits: Tensor, cached: int) -> None:
        """Pick the first token of every request of a group; the others copy the leader's prompt."""
        leader = group[0]
        self._ledger.hold(leader.slot, leader.owner, list(leader.prompt))
        self.cached_tokens += cached
        for request in group[1:]:
            self._place(request, leader.slot, len(leader.prompt))
            self.cached_tokens += len(leader.prompt)
        for request in group:
            self._running[request.slot] = request
        self._pick(group, logits.expand(len(group), -1))

    # -- decoding ----------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        """One token for every running request, in one pass over the slots from the first on: the cache is read in place."""
        self._compact()
        rows = sorted(self._running)
        requests = [self._running[slot] for slot in rows]
        lengths = [len(request.prompt) + len(request.tokens) for request in requests]
        span = max(lengths)
        self._cache.reserve(span)
        dense = rows[-1] + 1
        ids, columns = [0] * dense, [self._cache.bin] * dense
        for request, length in zip(requests, lengths, strict=True):
            self._ledger.tokens[request.slot].append(request.last_token)
            ids[request.slot], columns[request.slot] = request.last_token, length - 1
        batch = Pass(
            ids=torch.tensor(ids, device=self._device)[:, None],
            columns=torch.tensor(columns, device=self._device)[:, None],
            slots=None,
            span=span,
            last=None,
            adapters=self._adapter_groups(requests, dense=True),
        )
        logits = self._decoder.logits(batch, self._cache)
        self.passes += 1
        if len(rows) < dense:
            logits = logits[torch.tensor(rows, device=self._device)]
        self._pick(requests, logits)

    def _compact(self) -> None:
        """Move running requests into the idle slots below them when those would cost more than they do."""
        count = len(self._running)
        if max(self._running) + 1 <= _MOST_IDLE * count + 1:
            return
        high = sorted(slot for slot in self._running if slot >= count)
        low = sorted(set(range(count)) - self._running.keys())
        for slot, idle in zip(high, low, strict=True):
            request = self._running[idle] = self._running.pop(slot)
            request.slot = idle
            self._cache.exchange(slot, idle, self._ledger.exchange(slot, idle))

    def _adapter_groups(
        self, requests: list[Request], dense: bool = False
    ) -> list[tuple[LoraWeights | None, Tensor | None]]:
        """Which batch rows use which adapter; idle rows of a dense pass may use any."""
        groups: dict[tuple[str | None, int], tuple[LoraWeights | None, list[int]]] = {}
        for row, request in enumerate(requests):
            groups.setdefault(request.owner, (request.weights, []))[1].append(request.slot if dense else row)
        if len(groups) == 1:
            return [(requests[0].weights, None)]
        return [(weights, torch.tensor(rows, device=self._device)) for weights, rows in groups.values()]

    def _pick(self, requests: list[Request], logits: Tensor) -> None:
        tokens, logprobs = pick(
            logits,
            [request.params.temperature for request in requests],
            [request.params.top_p for request in requests],
            [request.uniforms.random() for request in requests],
        )
        self.sampled_tokens += len(requests)
        for request, token, logprob in zip(requests, tokens, logprobs, strict=True):
            request.tokens.append(token)
            request.logprobs.append(logprob)
            self._outbox.token(request, token, logprob)
            stopped = token in request.params.stop_ids
            if stopped or len(request.tokens) >= request.room:
                self._leave(request.slot)
                self._outbox.result(request, request.completion("stop" if stopped else "length"))


def _length(wave: list[list[Request]], starts: list[int], i: int) -> int:
    return len(wave[i][0].prompt) - starts[i]
