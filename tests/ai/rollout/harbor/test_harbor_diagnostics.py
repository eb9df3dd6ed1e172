"""Where a trial failed, how long its phases took, and what is hidden of it."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from osmosis_ai.rollout.backend.harbor.diagnostics import (
    agent_phase_failure,
    failure_phase,
    redact_secrets,
    trial_timings,
)


def test_timings_are_rounded_and_leave_out_unfinished_phases(trial: SimpleNamespace) -> None:
    result = trial.result(agent_setup=None, verifier=trial.span(5, None))
    assert trial_timings(result) == {"environment_setup": 1.0, "agent": 2.0, "total": 6.12}
    assert trial_timings(None) == {}
    assert trial_timings(SimpleNamespace()) == {}


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        ({}, "verifier"),
        ({"verifier": None}, "agent"),
        ({"verifier": None, "agent_execution": None}, "agent_setup"),
        ({"verifier": None, "agent_execution": None, "agent_setup": None}, "environment_setup"),
    ],
)
def test_the_furthest_phase_counts(trial: SimpleNamespace, given: dict[str, Any], phase: str) -> None:
    assert failure_phase(trial.result(**given)) == phase


def test_without_a_trial_the_phase_is_setup() -> None:
    assert failure_phase(None) == "setup"
    assert failure_phase(SimpleNamespace()) == "setup"


def test_an_exception_from_before_the_verifier_is_the_agents(trial: SimpleNamespace) -> None:
    early, late = trial.exception(at=3), trial.exception(at=5.5)
    assert agent_phase_failure(trial.result(exception_info=early)) is early
    assert failure_phase(trial.result(exception_info=early)) == "agent"
    assert agent_phase_failure(trial.result(exception_info=late)) is None
    assert failure_phase(trial.result(exception_info=late)) == "verifier"
    assert agent_phase_failure(trial.result(exception_info=late, verifier=None)) is late
    assert agent_phase_failure(trial.result()) is None
    assert agent_phase_failure(None) is None


def test_times_without_a_zone_are_local(trial: SimpleNamespace) -> None:
    result = trial.result()
    local = result.verifier.started_at.astimezone().replace(tzinfo=None)
    for offset, early in ((-1, True), (1, False)):
        info = SimpleNamespace(exception_type="X", occurred_at=local + timedelta(seconds=offset))
        result.exception_info = info
        assert (agent_phase_failure(result) is info) is early


def test_a_step_of_a_multi_step_task_may_hold_the_failure(trial: SimpleNamespace) -> None:
    step = SimpleNamespace(
        exception_info=trial.exception(at=3), verifier=trial.span(5), agent_execution=trial.span(2)
    )
    result = trial.result(step_results=[step], verifier=None, agent_execution=None)
    assert agent_phase_failure(result) is step.exception_info
    assert failure_phase(result) == "agent"


def test_secrets_are_replaced_as_a_whole() -> None:
    given = {
        "api_key": "k",
        "HF_TOKEN": "t",
        "x-authorization": ["a"],
        "db": {"password": "p", "user": "u"},
        "total_tokens": 7,
        "keys": ("ab", 3, "the key sk-123 leaks"),
        "sk-123": None,
    }
    assert redact_secrets(given, "sk-123") == {
        "api_key": "[REDACTED]",
        "HF_TOKEN": "[REDACTED]",
        "x-authorization": "[REDACTED]",
        "db": {"password": "[REDACTED]", "user": "u"},
        "total_tokens": 7,
        "keys": ("ab", 3, "[REDACTED]"),
        "[REDACTED]": None,
    }
    assert redact_secrets("text", "") == "text"
    assert redact_secrets({"my_credentials": 1, "credential": 2, "secretary": 3}) == {
        "my_credentials": "[REDACTED]",
        "credential": "[REDACTED]",
        "secretary": 3,
    }
