"""Base models from Hugging Face are fetched by the trainer's interpreter before the worker starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osmosis_platform.adapters.models import BaseModel


@pytest.fixture
def trainer(site: Any, tmp_path: Path) -> Any:
    """An interpreter that answers like a hub client."""

    def write(answer: str, status: int) -> None:
        python = tmp_path / "trainer-python"
        python.write_text(
            f'#!/bin/sh\necho "$3 asked with $HF_TOKEN" >> {tmp_path}/asked\necho "{answer}"\nexit {status}\n'
        )
        python.chmod(0o755)
        site.platform.settings.trainer_python = python

    return write


def test_a_model_is_fetched_and_its_folder_remembered(
    site: Any, trainer: Any, tmp_path: Path, script: Any
) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    trainer(f"folder:{folder}", 0)
    gate = tmp_path / "gate"
    script(wait_before={"0": str(gate)})
    secrets = {"required": ["HF_TOKEN"], "provided": {"HF_TOKEN": "hf_sesame"}}
    run_id = site.submit(model="Qwen/Qwen3-0.6B", secrets=secrets)
    site.until("the worker", lambda: site.note(run_id, "spec"))
    assert json.loads(site.note(run_id, "spec"))["base_model"] == {
        "name": "Qwen/Qwen3-0.6B",
        "path": str(folder),
    }
    gate.touch()
    assert site.wait_for(run_id, "finished", "failed").status == "finished", site.log(run_id)
    assert (tmp_path / "asked").read_text() == "Qwen/Qwen3-0.6B asked with hf_sesame\n"
    with site.platform.database.read() as session:
        assert session.query(BaseModel).where(BaseModel.name == "Qwen/Qwen3-0.6B").one().path == str(folder)


def test_a_model_that_is_not_there_ends_the_run(site: Any, trainer: Any) -> None:
    trainer("Repository Not Found for owner/nothing", 1)
    run = site.wait_for(site.submit(model="owner/nothing"), "finished", "failed")
    assert run.status == "failed"
    assert "cannot be fetched from Hugging Face: Repository Not Found" in run.error
