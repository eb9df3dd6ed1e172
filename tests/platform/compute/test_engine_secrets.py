"""Of a run's secrets the training worker gets the one that its engine needs, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from osmosis_ai.environments.build import BuildOptions
from osmosis_ai.worker.spec import TrainSpec
from osmosis_platform.compute.plan import RunFolder, RunPlan
from osmosis_platform.compute.worker import worker_spec


def plan(advanced: dict[str, object]) -> RunPlan:
    return RunPlan(
        run_id="r",
        name="run",
        kind="train",
        config={"advanced": advanced},
        model_path="m",
        entrypoint="main.py",
        rollout_name="multiply",
        commit_sha="0" * 40,
        repository="w/r",
        rows_sha256="0" * 64,
        dataset_rows=1,
        options=BuildOptions(),
        base_model=("m", "/models/m"),
        hosted_model=None,
        env={"PUBLIC": "1"},
        secrets={"SERVER_KEY": "tml-1", "OTHER": "hidden"},
    )


@pytest.mark.parametrize(
    ("advanced", "given"),
    [
        ({"engine": "tinker", "tinker_key": "SERVER_KEY"}, {"SERVER_KEY": "tml-1"}),
        ({"engine": "tinker", "tinker_key": None}, {}),
        ({"engine": "tinker", "tinker_key": "PUBLIC"}, {}),
        ({}, {}),
    ],
)
def test_the_worker_gets_the_key_of_its_engine_alone(
    tmp_path: Path, advanced: dict[str, object], given: dict[str, str]
) -> None:
    spec = TrainSpec.model_validate(
        worker_spec(
            plan(advanced),
            RunFolder(tmp_path),
            api_url="http://127.0.0.1:1",
            run_token="token",
            rollout_url="http://127.0.0.1:2",
            rollout_instance_id="i",
            hosted=None,
        )
    )
    assert spec.secrets == given
    assert "tml-1" not in repr(spec)
