"""The exchange files between host and container."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import AgentWorkflowOutput, RolloutSample, RolloutStatus
from osmosis_ai.rollout.container import files
from osmosis_ai.rollout.container.files import ContainerInput, ContainerResult, write_reward


def test_the_convention_of_harbor() -> None:
    assert Path("/logs/agent") == files.AGENT_LOGS_DIR
    assert Path("/logs/verifier") == files.VERIFIER_LOGS_DIR
    assert files.INPUT_FILENAME == "container_input.json"
    assert files.RESULT_FILENAME == "container_result.json"


def test_input_round_trip(tmp_path: Path) -> None:
    given = ContainerInput(
        rollout_id="r1",
        prompt=[{"role": "user", "content": "6 × 7?"}],
        label="42",
        metadata={"level": 1},
        chat_completions_url="http://127.0.0.1:1/v1",
        api_key="key",
    )
    path = tmp_path / "new" / files.INPUT_FILENAME
    given.write(path)
    assert ContainerInput.read(path) == given
    assert json.loads(path.read_text())["version"] == 1
    assert [entry.name for entry in path.parent.iterdir()] == [files.INPUT_FILENAME]


def test_input_defaults_and_the_required_id(tmp_path: Path) -> None:
    path = tmp_path / "input.json"
    path.write_text('{"rollout_id": "r1", "preview_path": "/later/versions/send/more"}')
    assert ContainerInput.read(path).model_dump() == {
        "version": 1,
        "rollout_id": "r1",
        "prompt": [],
        "label": None,
        "metadata": None,
        "chat_completions_url": "",
        "api_key": None,
    }
    path.write_text('{"prompt": []}')
    with pytest.raises(ValidationError, match="rollout_id"):
        ContainerInput.read(path)


@pytest.mark.parametrize("trajectory", [None, [{"role": "user", "content": "as chat"}]])
def test_a_sample_survives_in_every_field(tmp_path: Path, trajectory: list[dict[str, str]] | None) -> None:
    sample = RolloutSample(
        messages=[{"role": "user", "content": [{"text": "hi"}]}],
        trajectory_messages=trajectory,
        label="42",
        reward=0.5,
        remove_sample=True,
        metrics={"turns": 2, "deep": {"a": [1, None]}},
        extra_fields={"seed": "x"},
    )
    result = ContainerResult(
        status=RolloutStatus.SUCCESS,
        output=AgentWorkflowOutput(messages=[], metrics={"turns": 2.0}, info={"k": [1]}),
        sample=sample,
        err_message="none",
    )
    path = tmp_path / files.RESULT_FILENAME
    result.write(path)
    assert ContainerResult.read(path) == result
    assert ContainerResult.read(path).sample.trajectory_messages == trajectory


def test_telemetry_that_json_cannot_carry_is_dropped_on_writing(tmp_path: Path) -> None:
    sample = RolloutSample(
        messages=[], metrics={"good": 1, "bad": float("nan")}, extra_fields={"x": object()}
    )
    path = tmp_path / files.RESULT_FILENAME
    ContainerResult(status=RolloutStatus.SUCCESS, sample=sample).write(path)
    back = ContainerResult.read(path).sample
    assert back.metrics == {"good": 1}
    assert back.extra_fields == {}
    assert set(sample.metrics) == {"good", "bad"}


def test_a_result_needs_a_status(tmp_path: Path) -> None:
    path = tmp_path / files.RESULT_FILENAME
    path.write_text("{}")
    with pytest.raises(ValidationError, match="status"):
        ContainerResult.read(path)


def test_rewards_are_finite_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "VERIFIER_LOGS_DIR", tmp_path / "verifier")
    write_reward(1)
    assert json.loads((tmp_path / "verifier" / "reward.json").read_text()) == {"reward": 1.0}
    with pytest.raises(ValueError, match="finite"):
        write_reward(float("nan"))
