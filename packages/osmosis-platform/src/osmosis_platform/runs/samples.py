"""Training trajectories kept for people to read: which there are, and one of them with its tokens."""

from __future__ import annotations

import json
import math
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.runs.models import Run, RunSample
from osmosis_platform.runs.trajectories import window
from osmosis_platform.storage.store import BlobStore

CALLS = 20
TOKENS = 3000
# A token is marked by how surprising it was: the lower bounds of its probability, likeliest first.
LEVELS = (0.9, 0.5, 0.1, 0.01)


def steps_with_samples(session: Session, run: Run) -> list[int]:
    """The steps of which trajectories are kept, newest first."""
    query = (
        select(RunSample.step).where(RunSample.run_id == run.id).distinct().order_by(RunSample.step.desc())
    )
    return list(session.scalars(query))


def samples_of(session: Session, run: Run, step: int) -> list[dict[str, Any]]:
    """The trajectories of a step, best advantage first."""
    found = session.scalars(
        select(RunSample)
        .where(RunSample.run_id == run.id, RunSample.step == step)
        .order_by(RunSample.row_index, RunSample.advantage.desc(), RunSample.sample_index)
    )
    return [sample_row(sample) for sample in found]


def sample_row(sample: RunSample) -> dict[str, Any]:
    """One trajectory in a list."""
    return {
        "step": sample.step,
        "row_index": sample.row_index,
        "sample_index": sample.sample_index,
        "rollout_id": sample.rollout_id,
        "reward": sample.reward,
        "advantage": sample.advantage,
    }


def trajectory(blobs: BlobStore, sample: RunSample, first_call: int) -> dict[str, Any]:
    """The trajectory with the calls from `first_call` on, at most `CALLS` of them and `TOKENS` tokens of each."""
    found = window(blobs, sample.blob_sha256, first_call, CALLS, "calls")
    facts = {**_UNKNOWN, **found.facts}
    tool_sets = facts.pop("tool_sets")
    return {
        **facts,
        **sample_row(sample),
        "tools": [_tool_name(tool) for tools in tool_sets for tool in tools],
        "calls": [_call(call) for call in found.steps],
        "calls_page": {"limit": CALLS, "offset": first_call, "total": found.total, "more": found.more},
    }


# What a large document may say after its calls.
_UNKNOWN: dict[str, Any] = {
    "outcome": None,
    "reason": None,
    "sampled_tokens": None,
    "total_tokens": None,
    "tool_sets": [],
}


def _tool_name(tool: dict[str, Any]) -> str:
    return str((tool.get("function") or tool).get("name", "?"))


def _call(call: dict[str, Any]) -> dict[str, Any]:
    *added, answer = call["messages"]
    tokens = call["tokens"]
    return {
        **{key: value for key, value in call.items() if key not in ("messages", "tokens")},
        "steps": [_step(message) for message in added],
        "answer": _step(answer),
        "sampled_tokens": len(tokens),
        "tokens": [
            {**token, "shown": _visible(token["text"]), "level": _level(token["logprob"])}
            for token in tokens[:TOKENS]
        ],
    }


def _level(logprob: float) -> int:
    probability = math.exp(min(0.0, logprob))
    return next((level for level, bound in enumerate(LEVELS) if probability >= bound), len(LEVELS))


def _visible(text: str) -> str:
    return text.replace("\n", "↵\n").replace("\t", "⇥\t") or "∅"


def _step(message: dict[str, Any]) -> dict[str, Any]:
    """A chat message as a turn of a conversation."""
    role, content = message["role"], _text(message.get("content"))
    if role == "tool":
        results = [{"tool": message.get("name"), "content": content}]
        return {**_EMPTY, "source": "user", "results": results}
    return {
        **_EMPTY,
        "source": "agent" if role == "assistant" else role,
        "reasoning": _text(message.get("reasoning_content")),
        "message": content,
        "tool_calls": [_tool_call(call) for call in message.get("tool_calls") or []],
    }


_EMPTY: dict[str, Any] = {
    "model_name": None,
    "reasoning": "",
    "message": "",
    "tool_calls": [],
    "results": [],
}


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"arguments": arguments}
    return {
        "function_name": str(function.get("name", "?")),
        "arguments": arguments if isinstance(arguments, dict) else {},
    }


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return json.dumps(content)
    return "\n".join(
        str(part.get("text") or f"[{part.get('type')}]") if isinstance(part, dict) else str(part)
        for part in content
    )
