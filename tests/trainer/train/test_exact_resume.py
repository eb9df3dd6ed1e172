"""A run whose worker is killed anywhere ends with the adapter of a run never killed, bit for bit, with several rollouts at a time.

The engine, the gateway and all files are real. What shares a pass of the sampler is left to chance in every run.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STEPS = 4
ADAPTER = f"work/checkpoints/step-{STEPS}/adapter_model.safetensors"

Work = Callable[..., int]


def settings(staleness: int) -> dict[str, Any]:
    return {
        "training": {
            "rollout_batch_size": 3,
            "n_samples_per_prompt": 4,
            "lr": 2e-2,
            "max_prompt_length": 64,
            "max_response_length": 128,
        },
        "checkpoints": {"eval_interval": 2, "checkpoint_save_freq": 2},
        "advanced": {
            "max_steps": STEPS,
            "validation_rows": 2,
            "lora_rank": 4,
            "lora_alpha": 8,
            "mask_truncated": False,
            "refill_limit": 1,
            "max_staleness": staleness,
        },
    }


def adapter(folder: Path) -> bytes:
    return (folder / ADAPTER).read_bytes()


def numbers(folder: Path, key: str) -> dict[int, float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {step: values[key] for step, values in lines if key in values}


@pytest.mark.parametrize("staleness", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_three_kills_one_after_the_other(real_worker: Work, tmp_path: Path, staleness: int) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert real_worker(calm, settings(staleness)) == 0
    events = int((calm / "events").read_text())
    dice = random.Random(f"three kills {staleness}")
    for _ in range(3):
        assert (
            real_worker(rough, settings(staleness), dice.randrange(events // 8, events // 4))
            == -signal.SIGKILL
        )
    assert real_worker(rough, settings(staleness)) == 0
    assert adapter(rough) == adapter(calm)
    expected = {1: 0.0} | dict.fromkeys(range(2, STEPS + 1), float(staleness))
    assert numbers(rough, "rollout/staleness") == numbers(calm, "rollout/staleness") == expected
    assert max(numbers(calm, "train/sampler_mismatch_kl").values()) < 1e-6
    assert set(numbers(calm, "rollout/retokenized_turns").values()) == {0.0}
    if staleness:
        # Against the policy that sampled, not the one that learns: those differ by a whole step.
        assert max(numbers(calm, "train/staleness_kl").values()) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_twenty_kills_each_at_a_random_place(real_worker: Work, tmp_path: Path, staleness: int) -> None:
    calm = tmp_path / "calm"
    assert real_worker(calm, settings(staleness)) == 0
    events = int((calm / "events").read_text())
    dice = random.Random(f"twenty kills {staleness}")
    for number in range(20):
        kill = dice.randrange(1, events)
        rough = tmp_path / str(number)
        assert real_worker(rough, settings(staleness), kill) == -signal.SIGKILL
        assert real_worker(rough, settings(staleness)) == 0
        assert adapter(rough) == adapter(calm), f"killed at event {kill} of {events}"
