"""What the end of a rollout is called, in the order in which the rules apply."""

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import AgentWorkflowOutput, RolloutSample
from osmosis_ai.rollout.controller import TerminalCallbackResult
from osmosis_ai.rollout.controller.messages import readable
from osmosis_ai.rollout.controller.result import classify
from osmosis_ai.rollout.types import GraderCompleteRequest, RolloutCompleteRequest

DONE = {"status": "success"}
FAILED = {"status": "failure"}


def kept(**sample):
    return {"status": "success", "sample": {"messages": [], **sample}}


@pytest.mark.parametrize(
    ("source", "completion", "grader", "expected"),
    [
        ("timeout", DONE, None, ("failed", "callback_timeout", None)),
        ("cancelled", DONE, None, ("invalid", "cancelled", None)),
        ("grader", DONE, None, ("failed", "missing_grader_callback", None)),
        ("grader", DONE, FAILED, ("failed", "grader_failed", "grader")),
        ("grader", DONE, {**FAILED, "err_category": "timeout"}, ("failed", "timeout", "grader")),
        ("grader", None, FAILED, ("failed", "rollout_failed", None)),
        # A workflow that failed names the error: its grader channel reports a failure without any reason.
        ("grader", FAILED, FAILED, ("failed", "workflow_failed", "agent")),
        ("grader", {**FAILED, "err_category": "agent_error"}, FAILED, ("failed", "agent_error", "agent")),
        ("grader", FAILED, kept(remove_sample=True), ("skipped", None, None)),
        ("grader", FAILED, kept(reward=1.0), ("failed", "workflow_failed", "agent")),
        ("grader", DONE, kept(remove_sample=True, reward=1.0), ("skipped", None, None)),
        ("grader", None, kept(reward=0.0), ("success", None, None)),
        ("grader", DONE, kept(reward=1.0), ("success", None, None)),
        ("grader", DONE, kept(), ("failed", "missing_reward", None)),
    ],
)
def test_the_end_of_a_rollout(source, completion, grader, expected):
    terminal = TerminalCallbackResult(
        "r",
        source,
        None if completion is None else RolloutCompleteRequest(**completion),
        None if grader is None else GraderCompleteRequest(**grader),
    )
    result = classify(terminal, duration_ms=5.0)
    assert (result.status, result.error_type, result.failed_in) == expected
    assert (result.reward is not None) == (result.status == "success")
    assert (result.error_message is None) == (result.status in ("success", "skipped"))


def refuse(call):
    with pytest.raises(ValidationError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            refuse(lambda: RolloutSample(reward=float("nan"))),
            "RolloutSample.reward: Input should be a finite number, got nan",
        ),
        (
            refuse(lambda: AgentWorkflowOutput(metrics={"a": float("inf")}, more=1)),
            "AgentWorkflowOutput.metrics.a: Input should be a finite number, got inf; "
            "AgentWorkflowOutput.more: Extra inputs are not permitted, got 1",
        ),
        ("'expected_answer'", "'expected_answer'"),
        ("two\nlines", "two\nlines"),
        ("1 validation error for X\nnothing more", "1 validation error for X\nnothing more"),
    ],
)
def test_reports_of_pydantic_become_one_line(message, expected):
    assert readable(message) == expected
    grader = GraderCompleteRequest(status="failure", err_message=message)
    terminal = TerminalCallbackResult("r", "grader", RolloutCompleteRequest(**DONE), grader)
    assert classify(terminal, duration_ms=0.0).error_message == expected
