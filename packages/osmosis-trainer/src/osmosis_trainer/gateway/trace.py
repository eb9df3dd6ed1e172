"""What a rollout asked of the policy, token for token. The trace is all that training and the dashboard need of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

TRACE_VERSION = 1


class Branch(StrEnum):
    """How a call's prompt relates to the calls before it."""

    ROOT = "root"
    """The first call."""
    EXTENDED = "extended"
    """Continues an answer that nothing else continues."""
    FORK = "fork"
    """Continues an answer that an earlier call continues too."""
    RESTART = "restart"
    """Begins anew, with a prompt that holds no recorded answer."""
    EDITED = "edited"
    """Holds an assistant turn the policy did not write: the agent changed or made up history."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One answered model call.

    The prompt the sampler saw is the parent's prompt, the parent's `token_ids` and `context_ids`; without a parent it
    is `context_ids`. `logprobs` (nats) belong to `token_ids`, which include the end token where one was sampled.
    `messages` are the normalised messages the call added, `answer` is what the agent got. Times are in seconds;
    `started_s` counts from the opening of the session.
    """

    index: int
    parent: int | None
    branch: Branch
    context_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    policy_version: int
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    finish_reason: str
    truncated: bool
    outcome: str
    messages: list[dict[str, Any]]
    answer: dict[str, Any]
    tool_set: int
    cached_tokens: int
    started_s: float
    seconds: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote."""
        return cls(**{**data, "branch": Branch(data["branch"])})


@dataclass(frozen=True, slots=True)
class SessionTrace:
    """All calls of one rollout, in the order in which they were asked. `calls[i].index` is i.

    `tool_sets[call.tool_set]` are the tools of a call. `retries` counts repeated requests that got their recorded
    answer; `refused` counts refusals by error code.
    """

    rollout_id: str
    seed: int
    calls: tuple[CallRecord, ...] = ()
    tool_sets: tuple[list[dict[str, Any]], ...] = ()
    retries: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def path(self, index: int) -> list[CallRecord]:
        """The calls from the root of call `index` to the call itself."""
        path: list[CallRecord] = []
        at: int | None = index
        while at is not None:
            path.append(self.calls[at])
            at = self.calls[at].parent
        return path[::-1]

    def prompt_ids(self, index: int) -> list[int]:
        """The exact ids the sampler saw for call `index`."""
        *earlier, call = self.path(index)
        return [
            *(token for item in earlier for token in (*item.context_ids, *item.token_ids)),
            *call.context_ids,
        ]

    def leaves(self) -> list[int]:
        """Calls that no other call continues, in order."""
        continued = {call.parent for call in self.calls}
        return [call.index for call in self.calls if call.index not in continued]

    @property
    def sampled_tokens(self) -> int:
        """Tokens the policy sampled."""
        return sum(len(call.token_ids) for call in self.calls)

    @property
    def total_tokens(self) -> int:
        """Length of the longest token sequence of the rollout, prompt included."""
        return max((len(self.prompt_ids(i)) + len(self.calls[i].token_ids) for i in self.leaves()), default=0)

    @property
    def branches(self) -> Counter[Branch]:
        """Calls by how they relate to the ones before."""
        return Counter(call.branch for call in self.calls)

    @property
    def outcomes(self) -> Counter[str]:
        """Calls by parse outcome."""
        return Counter(call.outcome for call in self.calls)

    @property
    def truncated(self) -> bool:
        """Whether an answer was cut off by its token limit."""
        return any(call.truncated for call in self.calls)

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON."""
        return {"version": TRACE_VERSION, **asdict(self), "calls": [asdict(call) for call in self.calls]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; raises ValueError for a trace of another version."""
        if data.get("version") != TRACE_VERSION:
            raise ValueError(
                f"a session trace of version {data.get('version')} cannot be read; expected {TRACE_VERSION}"
            )
        known = {item.name: data[item.name] for item in fields(cls)}
        known["calls"] = tuple(CallRecord.from_dict(call) for call in data["calls"])
        known["tool_sets"] = tuple(data["tool_sets"])
        return cls(**known)
