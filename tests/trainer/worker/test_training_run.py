"""The whole loop with real parts: rollout server process, tiny model, run API over HTTP. The worker runs in this process."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from typing import Any

import pytest
from safetensors.torch import load_file

ADAPTER = "checkpoints/step-3/adapter_model.safetensors"


async def test_a_run_trains_reports_and_leaves_checkpoints(
    make_run: Any, platform: Any, rollout_server: Any
) -> None:
    before = len(rollout_server.started())
    run = make_run()
    assert await run.work() == 0

    assert platform.of("failed") == []
    assert set(platform.values("rollout/raw_reward")) == {1, 2, 3}
    assert set(platform.values("eval/validation/reward")) == {0, 2, 3}
    assert platform.values("train/lr") == {1: 0.02, 2: 0.02, 3: 0.02}
    assert platform.of("progress")[-1] == {
        "type": "progress",
        "phase": "finalize",
        "current_step": 3,
        "total_steps": 3,
        "examples_processed": 36,
    }
    # The embedded sampler and the learner agree on every trained token.
    assert all(0.0 <= gap < 1e-4 for gap in platform.values("train/sampler_gap_max").values())
    assert all(tokens > 0 for tokens in platform.values("train/tokens").values())
    assert any("step 2/3 · reward" in line for line in platform.log())

    first, last = platform.of("checkpoint")
    assert (first["step"], first["final"], last["step"], last["final"]) == (2, False, 3, True)
    assert last["reward"] == platform.values("rollout/raw_reward")[3]
    with tarfile.open(fileobj=io.BytesIO(platform.blobs[last["blob"]])) as archive:
        assert {"adapter_config.json", "adapter_model.safetensors"} <= set(archive.getnames())
    weights = load_file(f"{last['path']}/adapter_model.safetensors")
    assert any(value.abs().max() > 0 for name, value in weights.items() if "lora_B" in name)

    sample = platform.of("sample")[0]
    trajectory = json.loads(platform.blobs[sample["blob"]])
    assert trajectory["rollout_id"] == sample["rollout_id"]
    assert trajectory["advantage"] == sample["advantage"]
    assert [call["branch"] for call in trajectory["calls"]] == ["root", "extended"]
    for sample in platform.of("sample"):
        [file] = sample["artifacts"]
        assert (file["path"], file["size"]) == ("notes/id.txt", len(sample["rollout_id"]))
        assert platform.blobs[file["sha256"]] == sample["rollout_id"].encode()
    started = rollout_server.started()[before:]
    assert len(started) == len(set(started)) == 3 * 12 + 3 * 16


async def test_a_killed_run_resumes_to_the_same_numbers_bitwise(
    make_run: Any, platform: Any, rollout_server: Any
) -> None:
    # One rollout at a time: then the sampler's batches are the same in both runs, and so is every bit.
    one = {"max_concurrent_rollouts": 1, "validation_rows": 0}
    calm = make_run("calm", advanced=one)
    assert await calm.work() == 0
    numbers = {event["step"]: event["values"] for event in platform.of("metrics")}
    platform.events.clear()

    rough = make_run("rough", advanced=one)
    finished: dict[Any, str] = {}
    for step in (1, 2):
        working = asyncio.create_task(rough.work())
        await platform.until(lambda p, step=step: step in p.values("train/loss"))
        await rough.journaled(3)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        finished |= rough.attempts()
    before = len(rollout_server.started())
    assert await rough.work() == 0
    assert not set(rollout_server.started()[before:]) & set(finished.values())

    assert (rough.folder / ADAPTER).read_bytes() == (calm.folder / ADAPTER).read_bytes()
    again = {event["step"]: event["values"] for event in platform.of("metrics")}
    for step, values in numbers.items():
        for key, value in values.items():
            if not key.startswith("perf/"):
                assert again[step][key] == value, key


async def test_what_agents_and_graders_do_wrong_is_never_an_infrastructure_score(
    make_run: Any, platform: Any
) -> None:
    """Rows 0-3 fail in the agent, 4-7 are removed: the run goes on, and says so."""
    wishes = {row: {"agent": "raise"} for row in range(4)} | {
        row: {"grader": "remove"} for row in range(4, 8)
    }
    run = make_run(
        metadata=wishes, advanced={"validation_rows": 0, "max_steps": 1}, training={"rollout_batch_size": 20}
    )
    assert await run.work() == 0
    assert platform.values("rollout/skipped_ratio") == {1: 0.2}
    assert platform.values("rollout/failed_ratio") == {1: 0.25}
    assert platform.values("rollout/invalid_ratio") == {1: 0.0}
    assert platform.values("rollout/groups_trained")[1] <= 12


async def test_a_run_whose_grader_fails_ends_with_the_reason(make_run: Any, platform: Any) -> None:
    run = make_run(
        metadata={row: {"grader": "raise"} for row in range(20)},
        advanced={"validation_rows": 0, "max_steps": 2},
    )
    assert await run.work() == 4
    [failed] = platform.of("failed")
    assert failed["error_type"] == "too_many_invalid"
    assert "12 of 12 samples of the last step" in failed["reason"]
    assert "the judge is away" in failed["reason"]
    assert platform.of("checkpoint") == []


async def test_a_stop_saves_a_checkpoint_and_exits_with_3(make_run: Any, platform: Any) -> None:
    platform.stop_when = lambda p: 1 in p.values("rollout/raw_reward")
    run = make_run(advanced={"max_steps": 50})
    assert await run.work() == 3
    [checkpoint] = platform.of("checkpoint")
    assert checkpoint["final"] is True
    assert (run.folder / f"state/step-{checkpoint['step']}/run.json").exists()
    assert platform.of("failed") == []
    assert any("a user asked for it" in line for line in platform.log())


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"advanced": {"engine": "warp"}}, "config_invalid", r"[advanced] engine"),
        ({"advanced": {"lora_rnak": 4}}, "config_invalid", r"[advanced] lora_rnak"),
        ({"training": {"n_samples_per_prompt": 1}}, "config_invalid", r"[training] n_samples_per_prompt"),
    ],
)
async def test_settings_that_cannot_be_honoured_fail_the_run_at_once(
    make_run: Any, platform: Any, changes: dict[str, Any], code: str, words: str
) -> None:
    assert await make_run(**changes).work() == 4
    [failed] = platform.of("failed")
    assert failed["error_type"] == code
    assert words in failed["reason"]
