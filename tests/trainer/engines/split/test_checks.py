"""What is held against a server: its answers, and the scores of the probe."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.engines.split import learner_group
from osmosis_trainer.engines.split.probe import Tolerance, compare
from osmosis_trainer.engines.split.wire import Sampled, SamplerFaultError, check_answer
from osmosis_trainer.errors import EngineError, StateError, TrainerError
from osmosis_trainer.learner.memory import OutOfMemoryError

PROMPT = [5, 6, 7]
PARAMS = SamplingParams(3, stop_ids=frozenset({2}))
GOOD = Sampled([8, 9, 2], [-0.5, -1.0, -0.1], "stop", "v1", [5, 6, 7])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"model": None, "prompt_ids": None}, None),
        ({"token_ids": [8, 9, 4], "finish_reason": "length"}, None),
        ({"model": "v0"}, "it answered with 'v0' where 'v1' was asked"),
        ({"prompt_ids": [5, 6]}, "it echoes other prompt tokens"),
        ({"token_ids": [], "logprobs": []}, "it returned 0 tokens"),
        ({"token_ids": [8, 9, 8, 2], "logprobs": [-1.0] * 4}, "it returned 4 tokens"),
        ({"logprobs": [-1.0]}, "3 tokens with 1 log-probabilities"),
        ({"logprobs": [-1.0, math.nan, -1.0]}, "a log-probability that is no number"),
        ({"logprobs": [-1.0, None, -1.0]}, "a log-probability that is no number"),
        ({"token_ids": [8, 9, 4]}, "it stopped at token 4, which is none of the stop tokens"),
        ({"token_ids": [8, 2, 9], "finish_reason": "length"}, "it went on after a stop token"),
    ],
)
def test_an_answer_is_one_to_the_request(changes: dict[str, object], words: str | None) -> None:
    answer = replace(GOOD, **changes)  # type: ignore[arg-type]
    if words is None:
        assert check_answer("http://s", "v1", PROMPT, PARAMS, answer) is answer
        return
    with pytest.raises(SamplerFaultError, match=f"http://s cannot be trusted: .*{words}"):
        check_answer("http://s", "v1", PROMPT, PARAMS, answer)


def scores(*shifts: float) -> list[list[float]]:
    """Two prompts of three scores, moved alternately up and down."""
    return [[-1.0 + shift, -2.0 - shift, -3.0 + shift] for shift in shifts]


def test_float32_allows_the_largest_difference_bfloat16_the_mean_one() -> None:
    exact, half = Tolerance.of("float32", None), Tolerance.of("bfloat16", None)
    assert compare("http://s", scores(5e-5, 0), scores(0, 0), None, exact) == pytest.approx(5e-5)
    with pytest.raises(SamplerFaultError, match=r"differ from the learner's by 0\.0002 nats \(largest\)"):
        compare("http://s", scores(2e-4, 0), scores(0, 0), None, exact)
    assert compare("http://s", scores(0.15, 0), scores(0, 0), None, half) == pytest.approx(0.075)
    with pytest.raises(SamplerFaultError, match=r"0\.15 nats \(mean\), 0\.1 are allowed"):
        compare("http://s", scores(0.15, 0.15), scores(0, 0), None, half)
    assert compare("http://s", scores(0.15, 0.15), scores(0, 0), None, Tolerance.of("bfloat16", 0.2)) < 0.2


def test_the_version_before_is_recognised_within_the_tolerance() -> None:
    half = Tolerance.of("bfloat16", None)
    before, now = scores(0.0, 0.0), scores(0.05, 0.05)
    assert compare("http://s", scores(0.06, 0.045), now, before, half) < 0.1
    with pytest.raises(SamplerFaultError, match="it serves an older adapter"):
        compare("http://s", scores(0.01, -0.005), now, before, half)
    # Where hardly anything was learned, noise decides nothing.
    assert compare("http://s", scores(0.02, -0.02), scores(1e-3, 1e-3), before, half) < 0.1


def test_not_a_number_is_no_small_difference() -> None:
    with pytest.raises(SamplerFaultError, match="differ from the learner's by nan"):
        compare("http://s", [[math.nan, -2.0]], [[-1.0, -2.0]], None, Tolerance.of("float32", None))


@pytest.mark.parametrize("kind", [StateError, OutOfMemoryError, learner_group.PassTooLargeError, EngineError])
def test_an_error_of_a_learner_process_keeps_its_kind(kind: type[TrainerError]) -> None:
    with pytest.raises(kind, match="too bad") as raised:
        learner_group._open({"error": kind.code, "message": "too bad"})
    assert type(raised.value) is kind
