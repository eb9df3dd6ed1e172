"""Which files of a trial stay: artifacts and logs, never through links."""

import logging
from pathlib import Path

import pytest

from osmosis_ai.rollout.backend.harbor.artifacts import (
    keep_artifacts,
    merge_grader_artifacts,
    retain_trial_logs,
)


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "trials" / "trial-r1"
    for name in ("agent", "verifier", "artifacts/logs/artifacts"):
        (folder / name).mkdir(parents=True)
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_the_graders_files_join_those_of_the_agent(trial_dir: Path, tmp_path: Path) -> None:
    collected = trial_dir / "artifacts" / "logs" / "artifacts"
    (collected / "agent.txt").write_text("first")
    staged = trial_dir / "verifier" / ".osmosis-artifacts"
    staged.mkdir()
    (staged / "agent.txt").write_text("changed")
    (staged / "grade.txt").write_text("new")
    merge_grader_artifacts(trial_dir, "r1")
    assert not staged.exists()
    assert keep_artifacts(trial_dir, tmp_path / "root", "r1")
    assert tree(tmp_path / "root") == {
        "r1/artifacts/logs/artifacts/agent.txt": "changed",
        "r1/artifacts/logs/artifacts/grade.txt": "new",
    }


def test_artifacts_of_steps_are_kept_apart(trial_dir: Path, tmp_path: Path) -> None:
    step = trial_dir / "steps" / "one" / "artifacts"
    step.mkdir(parents=True)
    (step / "a.txt").write_text("a")
    assert keep_artifacts(trial_dir, tmp_path / "root", "r1")
    assert tree(tmp_path / "root") == {"r1/artifacts/steps/one/a.txt": "a"}


def test_a_failed_merge_is_logged(trial_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside = trial_dir.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (trial_dir / "verifier" / ".osmosis-artifacts").symlink_to(outside)
    merge_grader_artifacts(trial_dir, "r1")
    assert "Failed to merge grader artifacts for rollout r1" in caplog.text
    assert not (trial_dir / "artifacts" / "logs" / "artifacts" / "secret").exists()


def test_artifacts_that_cannot_be_copied_are_logged(
    trial_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / "r1").symlink_to(tmp_path / "elsewhere")
    assert not keep_artifacts(trial_dir, tmp_path / "root", "r1")
    assert "Failed to relocate trial artifacts for rollout r1" in caplog.text
    assert not any((tmp_path / "elsewhere").iterdir())


def test_logs_are_kept_beside_the_artifacts(
    trial_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (trial_dir / "trial.log").write_text("log")
    (trial_dir / "exception.txt").write_text("trace")
    (trial_dir / "config.json").write_text("not a log")
    (trial_dir / "agent" / "a.txt").write_text("a")
    (trial_dir / "verifier" / "v.txt").write_text("v")
    for name in ("agent", "verifier", "artifacts"):
        (trial_dir / "steps" / "one" / name).mkdir(parents=True)
        (trial_dir / "steps" / "one" / name / "s.txt").write_text(name)
    with caplog.at_level(logging.INFO):
        assert retain_trial_logs(tmp_path / "trials", tmp_path / "root", "r1")
    assert tree(tmp_path / "root" / "r1" / "logs") == {
        "trial.log": "log",
        "exception.txt": "trace",
        "agent/a.txt": "a",
        "verifier/v.txt": "v",
        "steps/one/agent/s.txt": "agent",
        "steps/one/verifier/s.txt": "verifier",
    }
    assert "Kept 6 log files of rollout r1" in caplog.text


def test_links_are_no_logs(trial_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("s")
    (trial_dir / "trial.log").symlink_to(tmp_path / "secret")
    (trial_dir / "agent" / "a.txt").symlink_to(tmp_path / "secret")
    (trial_dir / "verifier").rmdir()
    (trial_dir / "verifier").symlink_to(tmp_path / "folder")
    (trial_dir / "steps").symlink_to(tmp_path / "folder")
    assert retain_trial_logs(tmp_path / "trials", tmp_path / "root", "r1")
    assert tree(tmp_path / "root") == {}


@pytest.mark.parametrize("link", ["r1", "r1/logs"])
def test_a_destination_behind_a_link_gets_no_logs(trial_dir: Path, tmp_path: Path, link: str) -> None:
    (trial_dir / "trial.log").write_text("log")
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "root" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    assert not retain_trial_logs(tmp_path / "trials", tmp_path / "root", "r1")
    assert not any((tmp_path / "elsewhere").iterdir())


def test_a_trial_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "trial.log").write_text("log")
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "trial-r1").symlink_to(tmp_path / "elsewhere")
    assert not retain_trial_logs(tmp_path / "trials", tmp_path / "root", "r1")


def test_a_missing_trial_has_no_logs(tmp_path: Path) -> None:
    assert retain_trial_logs(tmp_path / "trials", tmp_path / "root", "r1")
    assert not (tmp_path / "root").exists()
