"""What a workflow and a grader are given, and the rollout that is running in the current task."""

import os
from abc import ABC, abstractmethod
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from osmosis_ai.rollout.types.config import AgentWorkflowConfig
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.sample import MessageDict, RolloutSample

CHAT_COMPLETIONS_URL_ENV = "OSMOSIS_CHAT_COMPLETIONS_URL"
API_KEY_ENV = "OSMOSIS_API_KEY"
ROLLOUT_ID_ENV = "OSMOSIS_ROLLOUT_ID"


class SampleSource(ABC):
    """Something that recorded the conversation of a workflow, such as an agent or a session."""

    @abstractmethod
    async def get_sample(self) -> RolloutSample:
        """The conversation so far, as a sample."""


class RolloutProgress(Protocol):
    """Wants to know how far a rollout is."""

    def status_changed(self, status: RolloutStatus) -> None:
        """The rollout has reached this status."""


@dataclass
class RolloutContext:
    """The rollout that runs in this task: where the policy answers, and what recorded the conversation.

    Empty arguments are filled from ``OSMOSIS_CHAT_COMPLETIONS_URL``, ``OSMOSIS_API_KEY`` and ``OSMOSIS_ROLLOUT_ID``.
    ``repr()`` contains the API key: do not log it.

    Entering makes it current for this task and the tasks started from it; leaving makes *none* current, also where
    another one was current before. A rollout never nests in another one.
    """

    chat_completions_url: str = ""
    api_key: str | None = None
    rollout_id: str = ""
    sample_source: SampleSource | None = field(default=None)
    progress: RolloutProgress | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.chat_completions_url = self.chat_completions_url or os.environ.get(CHAT_COMPLETIONS_URL_ENV, "")
        self.api_key = self.api_key or os.environ.get(API_KEY_ENV)
        self.rollout_id = self.rollout_id or os.environ.get(ROLLOUT_ID_ENV, "")

    def __enter__(self) -> Self:
        rollout_contextvar.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        rollout_contextvar.set(None)

    def set_sample_source(self, source: SampleSource) -> None:
        """Register what records the conversation.

        Raises:
            ValueError: when one is registered already; a rollout yields exactly one sample.
        """
        if self.sample_source is not None:
            raise ValueError(
                "this rollout already has a sample source; construct one Osmosis agent or session per run() "
                "and run further candidates as separate rollouts"
            )
        self.sample_source = source

    async def set_status(self, status: RolloutStatus) -> None:
        """Tell whoever follows this rollout how far it is. Backends call it; nobody follows a rollout that is called back."""
        if self.progress is not None:
            self.progress.status_changed(status)

    async def get_sample(self) -> RolloutSample | None:
        """The sample of the registered source, asked anew each time, or None without a source."""
        return None if self.sample_source is None else await self.sample_source.get_sample()


rollout_contextvar: ContextVar[RolloutContext | None] = ContextVar("osmosis_rollout_context", default=None)


def get_rollout_context() -> RolloutContext | None:
    """The rollout of the current task, or None (a grader runs outside of one)."""
    return rollout_contextvar.get()


@dataclass
class AgentWorkflowContext[TConfig: AgentWorkflowConfig]:
    """The input of one workflow run.

    ``prompt`` holds the row's chat messages, ``metadata`` its metadata. ``artifacts_dir`` is a folder of this rollout to write
    files into; it is None where none could be made.
    """

    prompt: list[MessageDict]
    config: TConfig | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None


@dataclass
class GraderContext:
    """The input of one grading: the reference ``label`` and ``metadata`` of the row, and the workflow's ``sample``."""

    label: str | None = None
    sample: RolloutSample | None = None
    project_path: str | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None

    def set_reward(self, reward: float) -> None:
        """Give the sample its reward, a finite number.

        Raises:
            ValueError: when there is no sample, or the reward is not a finite number.
        """
        if self.sample is None:
            raise ValueError(
                "there is no sample to reward: the workflow neither returned messages nor constructed an Osmosis agent or session"
            )
        self.sample.reward = reward
