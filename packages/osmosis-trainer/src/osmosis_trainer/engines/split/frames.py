"""How the engine and its learner processes talk: JSON objects over pipes, each after its length in eight bytes.

JSON keeps every float exactly and, unlike pickle, runs nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

from osmosis_trainer.engines.protocol import Objective, TrainingRow

LENGTH = struct.Struct(">Q")


def encode(message: dict[str, Any]) -> bytes:
    """The message as one frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """The message of a frame's body."""
    message: dict[str, Any] = json.loads(body)
    return message


def read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message; None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = stream.read(length)
    return decode(body) if len(body) == length else None


def pack_rows(rows: Sequence[TrainingRow]) -> list[list[Any]]:
    """Rows as JSON values."""
    return [[r.token_ids, r.mask, r.logprobs, r.advantage, r.group, r.row_id, r.anchors] for r in rows]


def unpack_rows(values: Sequence[Sequence[Any]]) -> list[TrainingRow]:
    """What `pack_rows` made."""
    return [TrainingRow(*value) for value in values]


def pack_objective(objective: Objective) -> dict[str, Any]:
    """The objective as JSON values."""
    return asdict(objective)
