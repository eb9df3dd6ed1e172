"""From a sample to an ATIF document."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout.trajectory.atif import (
    Agent,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    Trajectory,
)
from osmosis_ai.rollout.trajectory.message_reading import (
    metrics_of,
    model_name_of,
    reasoning_of,
    text_of,
    timestamp_of,
    tool_calls_of,
)
from osmosis_ai.rollout.trajectory.report import LlmCallMetrics, SampleReport
from osmosis_ai.rollout.types.json_safe import json_safe_mapping
from osmosis_ai.rollout.types.sample import RolloutSample

AGENT_NAME = "osmosis-rollout-sdk"

type Source = Literal["system", "user", "agent"]

_SOURCES: dict[Any, Source] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "agent",
}
_TOOL_ROLES = frozenset({"tool", "function"})
_SUMMED = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")


def convert_sample_to_trajectory(
    sample: RolloutSample,
    *,
    rollout_id: str,
    request_label: str | None = None,
    request_metadata: Mapping[str, Any] | None = None,
    request_extra_fields: Mapping[str, Any] | None = None,
    report: SampleReport | None = None,
    default_model_name: str | None = None,
    unmatched_sample_reports: Mapping[str, Any] | None = None,
) -> Trajectory:
    """The sample's ``trajectory_messages`` as a document, with the calls of ``report`` on its agent steps.

    A report whose number of calls differs from the number of agent steps stays apart, under
    ``extra.osmosis.unmatched_llm_call_metrics``; its totals count nevertheless.

    Raises:
        ValueError: when the sample opted out of being saved, or has no messages.
    """
    if sample.trajectory_messages is None:
        raise ValueError("the sample has no trajectory-compatible messages")
    steps = _messages_to_steps(sample.trajectory_messages)
    calls = report.llm_call_metrics if report else []
    agent_steps = [step for step in steps if step.source == "agent"]
    matched = len(calls) == len(agent_steps)
    if matched:
        for step, call in zip(agent_steps, calls, strict=True):
            _apply_call(step, call)
    measured: list[Metrics] = (
        [step.metrics for step in steps if step.metrics]
        if matched or not calls
        else [_call_metrics(call) for call in calls]
    )
    osmosis = {
        "rollout_id": rollout_id,
        "label": sample.label if sample.label is not None else request_label,
        "reward": sample.reward,
        "sample_metrics": sample.metrics or None,
        "sample_extra_fields": sample.extra_fields or None,
        "request_metadata": request_metadata,
        "request_extra_fields": request_extra_fields,
        "unmatched_llm_call_metrics": None if matched or not calls else _dump_calls(calls),
        "unmatched_sample_reports": unmatched_sample_reports,
    }
    safe_osmosis, _ = json_safe_mapping({key: value for key, value in osmosis.items() if value is not None})
    return Trajectory(
        session_id=rollout_id,
        trajectory_id=rollout_id,
        agent=Agent(
            name=AGENT_NAME,
            version=PACKAGE_VERSION,
            model_name=(report.model_name if report else None) or default_model_name,
        ),
        steps=steps,
        final_metrics=_final_metrics(report, measured, len(steps)),
        extra={"osmosis": dict(safe_osmosis)},
    )


def _messages_to_steps(messages: Sequence[Mapping[str, Any]]) -> list[Step]:
    """One step per message; tool results join the agent step directly before them."""
    steps: list[Step] = []
    for message in messages:
        if message.get("role") not in _TOOL_ROLES:
            steps.append(_message_step(len(steps) + 1, message))
        elif steps and steps[-1].source == "agent":
            _add_observation(steps[-1], message)
        else:
            steps.append(_orphan_step(len(steps) + 1, message))
    return steps


def _message_step(step_id: int, message: Mapping[str, Any]) -> Step:
    role = message.get("role")
    source = _SOURCES.get(role) if isinstance(role, str) else None
    extra: dict[str, Any] = {} if source else {"original_role": role if isinstance(role, str) else ""}
    reasoning = reasoning_of(message)
    tool_calls = tool_calls_of(message)
    if source != "agent":
        # The format allows these on agent steps only; elsewhere they are kept as free-form data.
        extra |= {} if reasoning is None else {"reasoning_content": reasoning}
        extra |= {} if tool_calls is None else {"tool_calls": message["tool_calls"]}
        return Step(
            step_id=step_id,
            timestamp=timestamp_of(message),
            source=source or "user",
            message=text_of(message.get("content")),
            extra=extra or None,
        )
    metrics = metrics_of(message)
    return Step(
        step_id=step_id,
        timestamp=timestamp_of(message),
        source="agent",
        model_name=model_name_of(message),
        message=text_of(message.get("content")),
        reasoning_content=reasoning,
        tool_calls=tool_calls,
        metrics=metrics,
        llm_call_count=1 if metrics else None,
        extra=extra or None,
    )


def _add_observation(step: Step, message: Mapping[str, Any]) -> None:
    known = {call.tool_call_id for call in step.tool_calls or []}
    results = step.observation.results if step.observation else []
    step.observation = Observation(results=[*results, _observation_result(message, known)])


def _orphan_step(step_id: int, message: Mapping[str, Any]) -> Step:
    return Step(
        step_id=step_id,
        timestamp=timestamp_of(message),
        source="system",
        message="",
        observation=Observation(results=[_observation_result(message, set())]),
        extra={"original_role": message["role"]},
    )


def _observation_result(message: Mapping[str, Any], known: set[str]) -> ObservationResult:
    identity = message.get("tool_call_id")
    content = text_of(message.get("content"))
    if isinstance(identity, str) and identity in known:
        return ObservationResult(source_call_id=identity, content=content)
    return ObservationResult(content=content, extra=None if identity is None else {"tool_call_id": identity})


def _apply_call(step: Step, call: LlmCallMetrics) -> None:
    inline = step.metrics.model_dump(exclude_none=True) if step.metrics else {}
    step.metrics = Metrics.model_validate(inline | _call_metrics(call).model_dump(exclude_none=True))
    step.model_name = call.model_name or step.model_name
    step.llm_call_count = 1


def _call_metrics(call: LlmCallMetrics) -> Metrics:
    return Metrics.model_validate(call.model_dump(exclude={"model_name"}))


def _dump_calls(calls: list[LlmCallMetrics]) -> list[dict[str, Any]]:
    return [call.model_dump(exclude_none=True) for call in calls]


def _final_metrics(report: SampleReport | None, measured: list[Metrics], step_count: int) -> FinalMetrics:
    reported = {
        key: value
        for key, value in (report.final_metrics or {} if report else {}).items()
        if key != "total_steps"
    }
    if reported:
        try:
            return FinalMetrics.model_validate({**reported, "total_steps": step_count})
        except ValidationError:
            pass  # fall back to what the calls add up to
    totals: dict[str, Any] = {"total_steps": step_count}
    for name in _SUMMED:
        values = [value for metrics in measured if (value := getattr(metrics, name)) is not None]
        if values:
            totals[f"total_{name}"] = sum(values)
    return FinalMetrics.model_validate(totals)
