"""The token-exact session of one rollout: prompts, answers and what continues what."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from osmosis_trainer.chat.answer import Answer, sample_answer
from osmosis_trainer.chat.codec import CallNamer, ChatCodec
from osmosis_trainer.chat.errors import ChatRequestError, context_length_exceeded
from osmosis_trainer.chat.history import KnownTurn, TurnIndex, call_ids, digests, extend_digest
from osmosis_trainer.chat.messages import normalise_messages
from osmosis_trainer.chat.request import ChatRequest
from osmosis_trainer.engines.protocol import Engine, SamplingParams
from osmosis_trainer.gateway.trace import Branch, CallRecord, SessionTrace


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What the trainer decides for a rollout; it wins over the agent's request.

    `max_prompt_tokens` bounds a prompt that continues nothing, `max_response_tokens` everything after it (answers and
    tool results together), `max_completion_tokens` one answer. The agent may ask for shorter answers only.
    """

    seed: int
    temperature: float
    top_p: float
    max_prompt_tokens: int
    max_response_tokens: int
    max_completion_tokens: int | None = None


@dataclass(slots=True)
class _Call:
    """A call in the making; recorded once it is answered."""

    number: int
    request: ChatRequest
    known: KnownTurn | None
    prompt_ids: list[int]
    root_tokens: int
    params: SamplingParams
    started: float
    answer: Answer | None = None
    seconds: float = 0.0


class Session:
    """Answers one rollout's model calls and records them. Calls may run side by side."""

    def __init__(
        self, rollout_id: str, engine: Engine, codec: ChatCodec, adapter: str | None, limits: SessionLimits
    ) -> None:
        self.rollout_id = rollout_id
        self.sealed = False
        self.refused: Counter[str] = Counter()
        self._engine, self._codec, self._adapter, self._limits = engine, codec, adapter, limits
        self._opened = time.monotonic()
        self._turns = TurnIndex()
        self._calls: dict[int, _Call] = {}
        self._next_number = 0
        self._occurrences: defaultdict[bytes, set[int]] = defaultdict(set)
        self._recorded: dict[bytes, tuple[int, Answer]] = {}
        self._in_flight: dict[bytes, asyncio.Event] = {}
        self._retries = 0

    async def answer(self, request: ChatRequest, *, retry: bool) -> tuple[int, int, Answer]:
        """Answer a request: the call's number, its prompt's length and the answer.

        A `retry` (the client repeats a request whose answer it never got) gets the recorded answer if there is one,
        after waiting for the first try if that still runs. Raises ChatRequestError and what the engine raises.
        """
        fingerprint = _fingerprint(request)
        if retry:
            while (first := self._in_flight.get(fingerprint)) is not None:
                await first.wait()
            if fingerprint in self._recorded:
                self._retries += 1
                number, answer = self._recorded[fingerprint]
                return number, len(self._calls[number].prompt_ids), answer
        done = self._in_flight[fingerprint] = asyncio.Event()
        try:
            call = await self._sample(request)
        finally:
            done.set()
            if self._in_flight.get(fingerprint) is done:
                del self._in_flight[fingerprint]
        assert call.answer is not None
        self._recorded[fingerprint] = (call.number, call.answer)
        return call.number, len(call.prompt_ids), call.answer

    async def _sample(self, request: ChatRequest) -> _Call:
        running = digests(request.messages, request.tools)
        known = self._turns.find(request.messages, running)
        prompt_ids = self._codec.extend(request.messages, request.tools, known)
        root_tokens = self._calls[known.turn_id].root_tokens if known else len(prompt_ids)
        max_tokens = self._room(request, len(prompt_ids), root_tokens)
        prompt_key = hashlib.blake2b(json.dumps(prompt_ids).encode(), digest_size=16).digest()
        # The seed depends on the prompt and on how often it was asked, not on the order in which parallel calls arrive.
        used = self._occurrences[prompt_key]
        occurrence = next(n for n in range(len(used) + 1) if n not in used)
        used.add(occurrence)
        seed = _seed(self._limits.seed, prompt_key, occurrence)
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=self._limits.temperature,
            top_p=self._limits.top_p,
            stop_ids=self._codec.stop_ids,
            seed=seed,
        )
        call = _Call(self._next_number, request, known, prompt_ids, root_tokens, params, time.monotonic())
        self._next_number += 1
        try:
            answer = await sample_answer(
                self._engine,
                self._codec,
                prompt_ids,
                params,
                adapter=self._adapter,
                offered=request.offered,
                stops=request.stop,
                name_call=_call_namer(seed),
                parallel_tool_calls=request.parallel_tool_calls,
            )
        except BaseException:
            # Nothing was answered: a repetition is the same call again, with the same seed.
            used.discard(occurrence)
            raise
        if self.sealed:
            raise ChatRequestError(f"rollout {self.rollout_id} is over", code="rollout_closed", status=404)
        call.answer, call.seconds = answer, time.monotonic() - call.started
        self._record(call, running[-1])
        return call

    def _room(self, request: ChatRequest, prompt_tokens: int, root_tokens: int) -> int:
        """How many tokens the answer may have; refuses a prompt that leaves none."""
        limits, context = self._limits, self._engine.max_context
        if root_tokens > limits.max_prompt_tokens:
            raise context_length_exceeded(
                root_tokens, limits.max_prompt_tokens, "a prompt of this run may have"
            )
        if prompt_tokens >= context:
            raise context_length_exceeded(prompt_tokens, context, "prompt and answer together may have")
        response = prompt_tokens - root_tokens
        if response >= limits.max_response_tokens:
            raise context_length_exceeded(
                prompt_tokens,
                root_tokens + limits.max_response_tokens,
                f"the prompt has {root_tokens} and the answers and tool results of a rollout of this run may have "
                f"{limits.max_response_tokens} more, together",
            )
        room = min(limits.max_response_tokens - response, context - prompt_tokens)
        asked = [limit for limit in (request.max_tokens, limits.max_completion_tokens) if limit is not None]
        return min([room, *asked])

    def _record(self, call: _Call, digest: bytes) -> None:
        assert call.answer is not None
        self._calls[call.number] = call
        # The digest is that of the message as the agent will send it back.
        sent_back = normalise_messages([call.answer.message.to_message()])[0]
        turn = KnownTurn(
            [*call.prompt_ids, *call.answer.completion.token_ids],
            len(call.request.messages) + 1,
            call_ids(sent_back),
            call.number,
        )
        self._turns.add(extend_digest(digest, sent_back), turn)

    def trace(self) -> SessionTrace:
        """Everything answered so far, in the order asked; calls that failed leave no gap."""
        numbers = sorted(self._calls)
        position = {number: index for index, number in enumerate(numbers)}
        tool_sets: list[list[dict[str, Any]]] = []
        records: list[CallRecord] = []
        for number in numbers:
            call = self._calls[number]
            if call.request.tools not in tool_sets:
                tool_sets.append(call.request.tools)
            parent = position[call.known.turn_id] if call.known else None
            records.append(self._call_record(call, position[number], parent, records, tool_sets))
        return SessionTrace(
            self.rollout_id,
            self._limits.seed,
            tuple(records),
            tuple(tool_sets),
            self._retries,
            dict(self.refused),
        )

    def _call_record(
        self,
        call: _Call,
        index: int,
        parent: int | None,
        earlier: Sequence[CallRecord],
        tool_sets: list[list[dict[str, Any]]],
    ) -> CallRecord:
        assert call.answer is not None
        completion = call.answer.completion
        added = call.request.messages[call.known.message_count if call.known else 0 :]
        context = call.prompt_ids[len(call.known.token_ids) if call.known else 0 :]
        return CallRecord(
            index=index,
            parent=parent,
            branch=_branch(parent, added, earlier),
            context_ids=context,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            policy_version=completion.policy_version,
            seed=call.params.seed or 0,
            temperature=call.params.temperature,
            top_p=call.params.top_p,
            max_tokens=call.params.max_tokens,
            finish_reason=call.answer.finish_reason,
            truncated=completion.finish_reason == "length",
            outcome=call.answer.message.outcome.value,
            messages=added,
            answer=call.answer.message.to_message(),
            tool_set=tool_sets.index(call.request.tools),
            cached_tokens=completion.cached_tokens,
            started_s=call.started - self._opened,
            seconds=call.seconds,
        )


def _branch(parent: int | None, added: list[dict[str, Any]], earlier: Sequence[CallRecord]) -> Branch:
    if not earlier:
        return Branch.ROOT
    if any(message["role"] == "assistant" for message in added):
        return Branch.EDITED
    if parent is None:
        return Branch.RESTART
    return Branch.FORK if any(call.parent == parent for call in earlier) else Branch.EXTENDED


def _fingerprint(request: ChatRequest) -> bytes:
    """Names a request by everything in it that shapes the answer."""
    content = [request.messages, request.tools, len(request.offered), request.max_tokens, request.stop]
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=20).digest()


def _seed(session_seed: int, prompt_key: bytes, occurrence: int) -> int:
    text = f"{session_seed}/{occurrence}/".encode() + prompt_key
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def _call_namer(seed: int) -> CallNamer:
    return lambda i: hashlib.blake2b(f"{seed}/{i}".encode(), digest_size=16).hexdigest()
