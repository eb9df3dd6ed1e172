"""States of earlier versions are continued, those of later ones and of other settings are refused with the reason.

`state_format_1/` was left by the first trainer that wrote states: killed in step 3 of 4, whose four attempts are in the journal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osmosis_trainer.errors import StateError
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.state.folder import MANIFEST, atomic_folder
from osmosis_trainer.state.formats import FORMAT, require_same
from osmosis_trainer.train import train

OLD = Path(__file__).with_name("state_format_1")
OLD_CONFIG: dict[str, dict[str, Any]] = {
    "training": {"rollout_batch_size": 2, "n_samples_per_prompt": 2, "total_epochs": 1, "lr": 1e-3},
    "checkpoints": {"eval_interval": 2, "checkpoint_save_freq": 2},
    "advanced": {"seed": 11, "max_steps": 4, "validation_rows": 2, "warmup_ratio": 0.5, "refill_limit": 1},
}

OldRun = Callable[..., Any]


@pytest.fixture
def old_run(scripted: Any, tmp_path: Path) -> OldRun:
    """The run of `state_format_1/` in the hands of this trainer; `advanced=` changes settings."""

    def make(**advanced: Any) -> Any:
        work = tmp_path / "work"
        if not work.exists():
            shutil.copytree(OLD, work)
        config = OLD_CONFIG | {"advanced": OLD_CONFIG["advanced"] | advanced}
        return scripted.make_parts(work, tmp_path, config)

    return make


async def test_a_run_goes_on_after_the_trainer_was_upgraded(old_run: OldRun) -> None:
    run = old_run()
    kept = (OLD / "journal" / "step-3.jsonl").read_text().splitlines()
    finished = {json.loads(line)["trace"]["rollout_id"] for line in kept}
    await train(run)
    log = [event["message"] for event in run.report._events.of("log")]
    assert "resumed after step 2/4" in log
    started = [json.loads(line) for line in run.run_attempt.starts.read_text().splitlines()]
    assert {line["key"][1] for line in started} == {4}
    assert finished
    assert {row.row_id.split("/")[1] for rows in run.engine.trained for row in rows} == {"3", "4"}
    state = json.loads((run.work_dir / "state" / "step-4" / "run.json").read_text())
    assert (state["format"], state["step"]) == (FORMAT, 4)
    assert state["settings"]["training"]["lr"] == 1e-3


async def test_other_settings_are_refused_in_every_format(old_run: OldRun) -> None:
    with pytest.raises(StateError, match="other settings"):
        await train(old_run(seed=12))
    # An option that came later must do what the old trainer did.
    with pytest.raises(StateError, match=r"\[advanced\] max_staleness was 0 and is 1"):
        await train(old_run(max_staleness=1))
    await train(old_run())
    with pytest.raises(StateError, match=r"\[advanced\] seed was 11 and is 12\)"):
        await train(old_run(seed=12))


async def test_a_state_of_a_later_trainer_is_refused_and_kept(old_run: OldRun) -> None:
    run = old_run()
    await train(run)
    folder = run.work_dir / "state" / "step-4"
    content = json.loads((folder / "run.json").read_text())
    content |= {"format": FORMAT + 1, "versions": {"osmosis-trainer": "9.1.0"}}
    async with atomic_folder(folder) as draft:
        (draft / "run.json").write_text(json.dumps(content))
    # The state before it could be read, but silently falling back would do a step again.
    with pytest.raises(StateError, match=rf"format {FORMAT + 1} \(osmosis-trainer 9\.1\.0\)"):
        await train(old_run())
    assert {path.name for path in folder.iterdir()} == {"run.json", MANIFEST}


def test_an_option_the_trainer_does_not_have_any_more_is_named(tmp_path: Path) -> None:
    settings = RunSettings()
    saved = settings.shaping()
    require_same(tmp_path, saved, settings)
    saved["advanced"]["warp"] = 9
    with pytest.raises(StateError, match=r"\[advanced\] warp does not exist any more"):
        require_same(tmp_path, saved, settings)
