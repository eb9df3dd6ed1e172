"""Recognising an earlier model call inside the messages of a later one.

An agent framework sends the whole conversation back with every call. The answers in it come back as text; what is kept
here are the tokens that produced them, found again by a running digest over the messages. Tool-call ids and reasoning
are left out of the digest (frameworks rename the first and drop the second); surrounding white space is too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from osmosis_trainer.chat.messages import Message, Tool


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """A recorded answer: `token_ids` are its prompt's ids and its sampled ids; the first `message_count` normalised
    messages of a conversation that begins with it are those it stands for, the answer included. `turn_id` is the
    recorder's own name for it."""

    token_ids: Sequence[int]
    message_count: int
    call_ids: tuple[str, ...] = ()
    turn_id: int = 0


def digests(messages: Sequence[Message], tools: Sequence[Tool]) -> list[bytes]:
    """`result[i]` names the tools and the first `i` normalised messages; one hash per message."""
    running = [_hash(b"", list(tools))]
    for message in messages:
        running.append(extend_digest(running[-1], message))
    return running


def extend_digest(before: bytes, message: Message) -> bytes:
    """The digest after one more message."""
    calls = [
        [call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", ())
    ]
    text = message["content"]
    return _hash(before, [message["role"], text.strip() if message["role"] == "assistant" else text, calls])


def call_ids(message: Message) -> tuple[str, ...]:
    """The ids of an assistant message's tool calls."""
    return tuple(call["id"] for call in message.get("tool_calls", ()))


class TurnIndex:
    """The answers recorded so far, found by the conversation they end."""

    def __init__(self) -> None:
        self._turns: dict[bytes, list[KnownTurn]] = {}

    def add(self, digest: bytes, turn: KnownTurn) -> None:
        """Record `turn` under the digest of its messages and answer."""
        self._turns.setdefault(digest, []).append(turn)

    def find(self, messages: Sequence[Message], running: Sequence[bytes]) -> KnownTurn | None:
        """The longest recorded beginning of `messages` (`running` are their digests).

        Two answers that read the same are told apart by their tool-call ids, else the later one is taken.
        """
        for count in range(len(messages), 0, -1):
            if messages[count - 1]["role"] != "assistant":
                continue
            turns = self._turns.get(running[count])
            if turns:
                same = [turn for turn in turns if turn.call_ids == call_ids(messages[count - 1])]
                return (same or turns)[-1]
        return None


def _hash(before: bytes, content: object) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(before + text.encode(), digest_size=20).digest()
