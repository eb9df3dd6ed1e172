"""Samples, configs, outputs and protocol bodies."""

import copy
import fractions
import logging
import math
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import (
    AgentWorkflowConfig,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    ExecutionRequest,
    ExecutionResult,
    RolloutInitRequest,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.types import coerce_output

REQUIRED = {"initial_messages", "chat_completions_url", "completion_callback_url"}
INIT = {"initial_messages": [], "chat_completions_url": "http://c", "completion_callback_url": "http://d"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [(True, 1.0), (1, 1.0), ("1.5", 1.5), (b"2.5", 2.5), (Decimal("0.25"), 0.25), (None, None)],
)
def test_rewards_become_floats(given: Any, stored: float | None) -> None:
    sample = RolloutSample()
    sample.reward = given
    assert sample.reward == stored
    assert stored is None or type(sample.reward) is float
    assert RolloutSample(reward=given).reward == stored


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "nan", "abc", [1.0]])
def test_rewards_are_finite_numbers(bad: Any) -> None:
    sample = RolloutSample(reward=0.5)
    with pytest.raises(ValidationError):
        sample.reward = bad
    assert sample.reward == 0.5
    with pytest.raises(ValidationError):
        RolloutSample(reward=bad)


def test_trajectory_messages_are_a_snapshot_of_the_messages() -> None:
    message = {"role": "user", "content": ["a"]}
    sample = RolloutSample(messages=[message])
    message["content"].append("b")  # type: ignore[attr-defined]
    sample.messages = []
    assert sample.trajectory_messages == [{"role": "user", "content": ["a"]}]


def test_trajectory_opt_out_survives_a_round_trip() -> None:
    sample = RolloutSample(messages=[{"role": "user"}], trajectory_messages=None)
    sample.reward = 1.0
    assert sample.trajectory_messages is None
    assert RolloutSample.model_validate(sample.model_dump()).trajectory_messages is None


def test_uncopyable_messages_are_not_saved(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn:
        def __deepcopy__(self, memo: object) -> object:
            raise RuntimeError("no copies")

    sample = RolloutSample(messages=[{"content": Stubborn()}])
    assert sample.trajectory_messages is None
    assert "Failed to snapshot messages for trajectory persistence" in caplog.text


@pytest.mark.parametrize("bad", ["text", [1], ["a"], 5])
def test_messages_are_mappings(bad: Any) -> None:
    with pytest.raises(ValidationError):
        RolloutSample(messages=bad)


def test_a_tuple_of_messages_stays_one() -> None:
    assert RolloutSample(messages=({"role": "user"},)).messages == ({"role": "user"},)


def test_clean_sample_is_its_own_safe_copy() -> None:
    sample = RolloutSample(metrics={"a": 1, "b": [1.5, {"c": None}]}, extra_fields={"d": "x"})
    assert sample.json_safe_copy() is sample


def test_json_safe_copy_repairs_telemetry(caplog: pytest.LogCaptureFixture) -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    sample = RolloutSample(
        reward=1.0,
        metrics={
            "nan": math.nan,
            "half": fractions.Fraction(1, 2),
            "keys": {3: (1, 2), (1,): "lost"},
            "loop": [],
        },
        extra_fields={"object": object(), "deep": {"x": [math.inf, 2]}},
    )
    sample.metrics["loop"] = loop
    with caplog.at_level(logging.WARNING):
        safe = sample.json_safe_copy()
    assert safe.metrics == {"half": 0.5, "keys": {"3": [1, 2]}, "loop": [1]}
    assert safe.extra_fields == {"deep": {"x": [2]}}
    assert safe.reward == 1.0
    assert len(caplog.records) == 1
    assert "object" in caplog.text


def test_config_subclasses_hold_extra_fields_and_objects() -> None:
    class Config(AgentWorkflowConfig):
        name: str = "search"
        tool: Any = len

    config = Config(limit=3)  # type: ignore[call-arg]
    assert config.limit == 3  # type: ignore[attr-defined]
    assert copy.deepcopy(config).tool is len
    assert config.concurrency.max_concurrent is None
    with pytest.raises(ValidationError):
        config.name = 5  # type: ignore[assignment]
    with pytest.raises(ValidationError):
        ConcurrencyConfig(max_concurrent=0)


def test_outputs() -> None:
    output = AgentWorkflowOutput(messages=[{"role": "user"}], metrics={"a": 1})
    assert coerce_output(None) is None
    assert coerce_output(output) == output
    assert coerce_output([{"role": "user"}]) == AgentWorkflowOutput(messages=[{"role": "user"}])
    for value in ({}, "text", ()):
        with pytest.raises(TypeError, match="run\\(\\) must return"):
            coerce_output(value)
    output.metrics["a"] = math.nan
    with pytest.raises(ValidationError) as caught:
        coerce_output(output)
    assert [(error["type"], error["loc"]) for error in caught.value.errors()] == [
        ("finite_number", ("metrics", "a"))
    ]
    with pytest.raises(ValidationError) as caught:
        AgentWorkflowOutput(reward=1)  # type: ignore[call-arg]
    assert [(error["type"], error["loc"]) for error in caught.value.errors()] == [
        ("extra_forbidden", ("reward",))
    ]


def test_required_fields_of_the_init_request() -> None:
    required = {name for name, info in RolloutInitRequest.model_fields.items() if info.is_required()}
    assert required == REQUIRED


@pytest.mark.parametrize("bad", ["../other", "a/b", "a\\b", "/tmp/x", "\\\\host\\x", "a\0b", "..", ".", ""])
def test_unsafe_rollout_ids_are_refused(bad: str) -> None:
    with pytest.raises(ValidationError):
        RolloutInitRequest(**INIT, rollout_id=bad)
    with pytest.raises(ValidationError):
        ExecutionRequest(id=bad, prompt=[])


@pytest.mark.parametrize("good", ["r1", "rollout-xyz", "abc_123", "a:b ?", "x" * 5000])
def test_safe_rollout_ids_are_kept(good: str) -> None:
    assert RolloutInitRequest(**INIT, rollout_id=good).rollout_id == good


@pytest.mark.parametrize(
    "change",
    [
        {"llm_api_key": ""},
        {"label": 5},
        {"metadata": []},
        {"agent_timeout_sec": math.inf},
        {"initial_messages": ["x"]},
    ],
)
def test_bad_init_fields(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RolloutInitRequest(**{**INIT, **change})


def test_results_keep_the_very_sample() -> None:
    sample = RolloutSample()
    assert ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample).sample is sample
    assert RolloutStatus.SUCCESS == "success"
