"""What workers send: the events of the run API, validated at the door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, field_validator

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Index = Annotated[int, Field(ge=0, lt=2**31)]
Word = Annotated[str, Field(min_length=1, max_length=200)]

# Longer texts are cut: a log is for people, and one runaway line must not fill the database.
MAX_TEXT = 20_000


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """The text without characters that databases refuse, at most `limit` long."""
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= limit else clean[:limit] + " ... (cut)"


class Redactor(Protocol):
    """Takes secrets out of texts and files."""

    def deep(self, value: Any) -> Any:
        """A copy without secrets."""
        ...

    def masked_file(self, content: bytes) -> Iterator[bytes] | None:
        """The content of a file without secrets, in pieces; None when it holds none."""
        ...


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def redacted(self, redactor: Redactor) -> Self:
        """The event with the run's secrets taken out of what people will read."""
        texts: dict[str, Any] = {
            name: redactor.deep(getattr(self, name))
            for name in ("message", "details", "error_message", "reason", "values")
            if name in type(self).model_fields
        }
        artifacts = getattr(self, "artifacts", None)
        if artifacts:
            texts["artifacts"] = [
                file.model_copy(update={"path": redactor.deep(file.path)}) for file in artifacts
            ]
        return self.model_copy(update=texts)


class LogEvent(_Event):
    """A line for the run's log."""

    type: Literal["log"]
    id: Word
    timestamp: AwareDatetime
    level: Literal["info", "warning", "error"] = "info"
    step: Annotated[str, Field(max_length=50)] = ""
    message: str
    details: dict[str, Any] | None = None

    @field_validator("message")
    @classmethod
    def _cut(cls, value: str) -> str:
        return cut(value)

    @field_validator("details")
    @classmethod
    def _finite(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            size = len(json.dumps(value, allow_nan=False))
        except ValueError as error:
            raise ValueError("must hold finite numbers only") from error
        if size > 10 * MAX_TEXT:
            raise ValueError(f"must be at most {10 * MAX_TEXT} characters of JSON, got {size}")
        return value


class ProgressEvent(_Event):
    """How far the run is; the latest one wins."""

    type: Literal["progress"]
    current_step: Index | None = None
    total_steps: Index | None = None
    examples_processed: Index | None = None
    total_runs: Index | None = None
    sampled_rows: Index | None = None
    phase: Word | None = None


class MetricsEvent(_Event):
    """Values of metrics at one step."""

    type: Literal["metrics"]
    step: Index
    timestamp: AwareDatetime
    values: dict[Word, FiniteFloat]


class ArtifactFile(_Event):
    """A file that a rollout left; `path` is relative to its artifact folder."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256

    @field_validator("path")
    @classmethod
    def _safe(cls, value: str) -> str:
        parts = PurePosixPath(value).parts
        unsafe = "\\" in value or "\x00" in value or value.startswith("/") or value != "/".join(parts)
        if unsafe or any(part in ("..", ".") for part in parts):
            raise ValueError("must be a plain relative path")
        return value


class AttemptEvent(_Event):
    """A finished attempt of an evaluation."""

    type: Literal["attempt"]
    row_index: Index
    run_index: Index
    rollout_id: Word
    status: Literal["success", "failed", "skipped"]
    reward: FiniteFloat | None = None
    tokens: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    duration_ms: Annotated[FiniteFloat, Field(ge=0)] | None = None
    error_type: Word | None = None
    error_message: str | None = None
    trajectory_blob: Sha256 | None = None
    artifacts: list[ArtifactFile] = []

    @field_validator("error_message")
    @classmethod
    def _cut(cls, value: str | None) -> str | None:
        return None if value is None else cut(value, 4000)


class SampleEvent(_Event):
    """A training trajectory that people can read."""

    type: Literal["sample"]
    step: Index
    row_index: Index
    sample_index: Index
    rollout_id: Word
    reward: FiniteFloat | None = None
    advantage: FiniteFloat | None = None
    blob: Sha256
    artifacts: list[ArtifactFile] = []


class CheckpointEvent(_Event):
    """A saved adapter: `blob` is a tar of its folder in PEFT format."""

    type: Literal["checkpoint"]
    step: Index
    reward: FiniteFloat | None = None
    blob: Sha256
    path: str | None = None
    final: bool = False


class FailedEvent(_Event):
    """Why the worker is about to end with status 4."""

    type: Literal["failed"]
    reason: Annotated[str, Field(min_length=1)]
    error_type: Word = "run_failed"

    @field_validator("reason")
    @classmethod
    def _cut(cls, value: str) -> str:
        return cut(value, 4000)


Event = Annotated[
    LogEvent | ProgressEvent | MetricsEvent | AttemptEvent | SampleEvent | CheckpointEvent | FailedEvent,
    Field(discriminator="type"),
]


class Events(BaseModel):
    """Body of `POST /api/runs/{run_id}/events`."""

    model_config = ConfigDict(extra="forbid")
    events: Annotated[list[Event], Field(max_length=5000)]
