"""ATIF v1.7, the Agent Trajectory Interchange Format (https://www.harborframework.com/docs/agents/trajectory-format).

Unknown fields and non-finite numbers are refused in every object. The order of the fields is the order in the document.
"""

import json
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__: list[str] = []

type FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
type SchemaVersion = Literal[
    "ATIF-v1.0", "ATIF-v1.1", "ATIF-v1.2", "ATIF-v1.3", "ATIF-v1.4", "ATIF-v1.5", "ATIF-v1.6", "ATIF-v1.7"
]

_AGENT_ONLY_FIELDS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ImageSource(_Strict):
    """Where an image lies."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class ContentPart(_Strict):
    """A text or an image inside a message."""

    type: Literal["text", "image"]
    text: str | None = None
    source: ImageSource | None = None

    @model_validator(mode="after")
    def _holds_what_its_type_says(self) -> Self:
        if self.type == "text":
            if self.text is None:
                raise ValueError("'text' is required when type='text'")
            if self.source is not None:
                raise ValueError("'source' must be absent when type='text'")
        else:
            if self.source is None:
                raise ValueError("'source' is required when type='image'")
            if self.text is not None:
                raise ValueError("'text' must be absent when type='image'")
        return self


class ToolCall(_Strict):
    """A call the model asked for."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class SubagentTrajectoryRef(_Strict):
    """A pointer to the trajectory of a delegated agent."""

    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _resolvable(self) -> Self:
        if self.trajectory_id is None and self.trajectory_path is None:
            raise ValueError("a subagent reference must be resolvable: give trajectory_id or trajectory_path")
        return self


class ObservationResult(_Strict):
    """What one tool answered."""

    source_call_id: str | None = None
    content: str | list[ContentPart] | None = None
    subagent_trajectory_ref: list[SubagentTrajectoryRef] | None = None
    extra: dict[str, Any] | None = None


class Observation(_Strict):
    """What the environment answered to a step."""

    results: list[ObservationResult]


class Metrics(_Strict):
    """Usage of the model call behind a step; ``logprobs`` are natural logarithms, one per completion token."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: FiniteFloat | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[FiniteFloat] | None = None
    extra: dict[str, Any] | None = None


class FinalMetrics(_Strict):
    """Usage of the whole trajectory."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: FiniteFloat | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None


class Agent(_Strict):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class Step(_Strict):
    """One message of the conversation, with the tool results that answer it."""

    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | FiniteFloat | None = None
    message: str | list[ContentPart]
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.timestamp is not None:
            _check_timestamp(self.timestamp)
        if self.source != "agent":
            for name in _AGENT_ONLY_FIELDS:
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"'{name}' is only applicable when source is 'agent', not '{self.source}'"
                    )
        if self.llm_call_count == 0:
            for name in ("metrics", "reasoning_content"):
                if getattr(self, name) is not None:
                    raise ValueError(f"'{name}' must be absent when llm_call_count is 0")
        return self


class Trajectory(_Strict):
    """A whole conversation."""

    schema_version: SchemaVersion = "ATIF-v1.7"
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: "list[Trajectory] | None" = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for position, step in enumerate(self.steps, start=1):
            if step.step_id != position:
                raise ValueError(
                    f"step ids count from 1: expected {position} at steps[{position - 1}], got {step.step_id}"
                )
            known = {call.tool_call_id for call in step.tool_calls or []}
            for result in step.observation.results if step.observation else []:
                if result.source_call_id is not None and result.source_call_id not in known:
                    raise ValueError(
                        f"source_call_id '{result.source_call_id}' not found in step {position}'s tool_calls"
                    )
        self._check_subagents()
        return self

    def _check_subagents(self) -> None:
        ids = [trajectory.trajectory_id for trajectory in self.subagent_trajectories or []]
        if None in ids:
            raise ValueError("every embedded subagent trajectory must be resolvable: give it a trajectory_id")
        if len(set(ids)) != len(ids):
            raise ValueError("the trajectory_id of an embedded subagent trajectory is not unique")

    def has_multimodal_content(self) -> bool:
        """Whether any message or tool result contains an image."""
        contents: list[str | list[ContentPart] | None] = []
        for step in self.steps:
            contents.append(step.message)
            contents.extend(
                result.content for result in (step.observation.results if step.observation else [])
            )
        return any(
            part.type == "image" for content in contents if isinstance(content, list) for part in content
        )

    def to_json_dict(self, exclude_none: bool = True) -> dict[str, Any]:
        """The document as JSON values; nulls of the format's own fields are left out, those in free-form objects stay.

        Objects that JSON cannot express become their ``str()``.
        """
        return self.model_dump(mode="json", exclude_none=exclude_none, fallback=str)


def format_trajectory_json(document: dict[str, Any]) -> str:
    """The document as ASCII JSON, indented by two spaces, with each array of nothing but numbers on one line.

    Raises:
        ValueError: when it holds NaN or an infinity.
    """
    return _indented(document, "\n")


_ARRAY = (list, tuple)
_NUMBER = (int, float)
_to_json = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def _indented(value: Any, line_break: str) -> str:
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if type(value) is int:
        return str(value)
    inner = f"{line_break}  "
    if isinstance(value, dict) and value:
        items = [f"{inner}{_key(key)}: {_indented(item, inner)}" for key, item in value.items()]
        return f"{{{','.join(items)}{line_break}}}"
    if isinstance(value, _ARRAY) and not all(
        isinstance(item, _NUMBER) and not isinstance(item, bool) for item in value
    ):
        return f"[{','.join([inner + _indented(item, inner) for item in value])}{line_break}]"
    return _to_json(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return encode_basestring_ascii(key)
    return _to_json({key: None}).removesuffix(": null}")[1:]


def _check_timestamp(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"Invalid ISO 8601 timestamp: {text!r}") from error
