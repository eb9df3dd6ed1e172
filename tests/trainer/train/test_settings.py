"""Settings: defaults, rules that follow from them, and errors that name what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from osmosis_trainer.errors import ConfigError
from osmosis_trainer.settings import RunSettings


def settings(**sections: dict[str, Any]) -> RunSettings:
    return RunSettings.from_config(sections)


def test_sections_of_the_platform_are_not_read() -> None:
    assert (
        RunSettings.from_config(
            {"experiment": {"rollout": "x"}, "env": {"A": "1"}, "secrets": {"required": []}}
        )
        == RunSettings()
    )


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"training": {"lr": 0}}, r"\[training\] lr"),
        ({"training": {"lr": float("nan")}}, r"\[training\] lr"),
        ({"training": {"n_samples_per_prompt": 1}}, r"\[training\] n_samples_per_prompt: .* \(got 1\)"),
        ({"sampling": {"rollout_temperature": 0}}, r"\[sampling\] rollout_temperature"),
        ({"advanced": {"loss": "ppo"}}, r"\[advanced\] loss"),
        ({"advanced": {"lora_rnk": 8}}, r"\[advanced\] lora_rnk"),
        ({"trainig": {}}, r"unknown configuration section \[trainig\]"),
    ],
)
def test_errors_name_section_field_and_value(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunSettings.from_config(sections)


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "steps"), [(32, 32, 1, 1), (33, 32, 1, 2), (100, 32, 3, 12), (1, 8, 2, 2)]
)
def test_steps_follow_from_rows_and_epochs(rows: int, batch: int, epochs: int, steps: int) -> None:
    chosen = settings(training={"rollout_batch_size": batch, "total_epochs": epochs})
    assert chosen.total_steps(rows) == steps
    assert settings(advanced={"max_steps": 7}).total_steps(rows) == 7


@pytest.mark.parametrize(
    ("rows", "held_out", "samples"), [(1000, 32, 2), (160, 32, 2), (100, 20, 3), (10, 2, 8), (4, 0, 0)]
)
def test_validation_takes_at_most_a_fifth_of_the_rows_and_about_64_samples(
    rows: int, held_out: int, samples: int
) -> None:
    assert settings().validation_rows(rows) == held_out
    assert settings().validation_samples(held_out) == samples


@pytest.mark.parametrize(
    ("ratio", "steps", "rates"),
    [
        (0.0, 4, [1.0, 1.0, 1.0, 1.0]),
        (0.5, 4, [0.5, 1.0, 1.0, 1.0]),
        (1.0, 4, [0.25, 0.5, 0.75, 1.0]),
        (0.05, 20, [1.0, 1.0]),
        (0.05, 40, [0.5, 1.0, 1.0]),
    ],
)
def test_the_learning_rate_rises_over_the_warm_up(ratio: float, steps: int, rates: list[float]) -> None:
    chosen = settings(training={"lr": 1e-3}, advanced={"warmup_ratio": ratio})
    assert [chosen.learning_rate(step, steps) for step in range(1, len(rates) + 1)] == pytest.approx(
        [1e-3 * rate for rate in rates]
    )


def test_the_objective_carries_every_knob() -> None:
    objective = settings(
        sampling={"rollout_temperature": 0.7},
        advanced={
            "loss": "cispo",
            "clip_low": 0.1,
            "clip_high": 0.3,
            "ratio_upper_cap": 2.0,
            "ratio_cap": 4.0,
            "kl_coef": 0.01,
            "max_completion_tokens": 9,
        },
    ).objective()
    assert (objective.loss, objective.clip_low, objective.clip_high, objective.negative_cap) == (
        "cispo",
        0.1,
        0.3,
        2.0,
    )
    assert (objective.ratio_cap, objective.kl_coef, objective.temperature) == (4.0, 0.01, 0.7)
    assert objective.max_completion_tokens == 9
    assert settings().objective().max_completion_tokens == 8192


def test_what_shapes_the_numbers_is_told_from_what_does_not() -> None:
    calm = settings().shaping()
    assert settings(advanced={"max_concurrent_rollouts": 3, "torch_threads": 4}).shaping() == calm
    assert settings(advanced={"keep_checkpoints": 2}).shaping() == calm
    assert settings(advanced={"seed": 1}).shaping() != calm
    assert settings(sampling={"rollout_top_p": 0.9}).shaping() != calm


def test_warnings_name_what_a_user_should_know() -> None:
    assert settings().warnings() == []
    assert "low for a LoRA adapter" in settings(training={"lr": 1e-6}).warnings()[0]
    assert "high" in settings(training={"lr": 2e-3}).warnings()[0]
    assert settings(training={"lr": 2e-3}).warnings(tiny_model=True) == []
    assert "top-p 0.9" in settings(sampling={"rollout_top_p": 0.9}).warnings()[0]
