"""What is kept of a trial: its artifacts and its logs, in the rollout's folder."""

import logging
import shutil
import stat
from pathlib import Path

from osmosis_ai.rollout.backend.harbor.credentials import CredentialScrubError, scrub_tree
from osmosis_ai.rollout.backend.harbor.trial import trial_name
from osmosis_ai.rollout.utils.file_artifacts import (
    GRADER_ARTIFACTS_SNAPSHOT_DIRNAME,
    HARBOR_ARTIFACTS_DIR,
    copy_artifact_tree,
)

__all__ = [
    "CredentialScrubError",
    "keep_artifacts",
    "last_words_of_verifier",
    "merge_grader_artifacts",
    "retain_trial_logs",
    "scrub_tree",
]

logger = logging.getLogger(__name__)

LOGS_DIRNAME = "logs"
_LAST_WORDS_BYTES = 4096
_LOG_FILES = ("trial.log", "exception.txt")
_LOG_FOLDERS = ("agent", "verifier")


def merge_grader_artifacts(trial_dir: Path, rollout_id: str) -> None:
    """Bring the files that the grader changed back to those of the agent, which Harbor collected before grading.

    A failure is logged: artifacts never change the outcome of a rollout.
    """
    staged = trial_dir / "verifier" / GRADER_ARTIFACTS_SNAPSHOT_DIRNAME
    collected = trial_dir / "artifacts" / HARBOR_ARTIFACTS_DIR.relative_to("/")
    try:
        _refuse_links(trial_dir.parent, staged)
        copy_artifact_tree(staged, collected, destination_root=trial_dir)
        if staged.is_dir():
            shutil.rmtree(staged)
    except (OSError, ValueError):
        logger.warning("Failed to merge grader artifacts for rollout %s", rollout_id, exc_info=True)


def keep_artifacts(trial_dir: Path, artifact_root: Path, rollout_id: str) -> bool:
    """Copy the artifacts of the trial, and of each of its steps below ``steps/``, to ``<root>/<id>/artifacts``.

    Returns False, with a warning, when some could not be copied.
    """
    destination = artifact_root / rollout_id / "artifacts"
    try:
        _refuse_links(trial_dir.parent, trial_dir)
        copy_artifact_tree(trial_dir / "artifacts", destination, destination_root=artifact_root)
        for step in _steps(trial_dir):
            copy_artifact_tree(
                step / "artifacts", destination / "steps" / step.name, destination_root=artifact_root
            )
    except (OSError, ValueError):
        logger.warning("Failed to relocate trial artifacts for rollout %s", rollout_id, exc_info=True)
        return False
    return True


def retain_trial_logs(trials_dir: Path, artifact_root: Path, rollout_id: str) -> bool:
    """Copy what the trial, its agent and its verifier logged to ``<root>/<id>/logs``, apart from the artifacts.

    Nothing is read or written through links. Returns False, with a warning, when something could not be kept; a trial that is
    not there has no logs, which is True.
    """
    trial_dir = trials_dir / trial_name(rollout_id)
    destination = artifact_root / rollout_id / LOGS_DIRNAME
    try:
        _refuse_links(trials_dir, trial_dir)
        if not trial_dir.is_dir():
            return True
        count = sum(
            _copy_file(trial_dir / name, destination / name, artifact_root=artifact_root)
            for name in _LOG_FILES
        )
        for holder in (trial_dir, *_steps(trial_dir)):
            for name in _LOG_FOLDERS:
                relative = (holder / name).relative_to(trial_dir)
                count += copy_artifact_tree(
                    holder / name, destination / relative, destination_root=artifact_root
                )
    except (OSError, ValueError):
        logger.warning("Failed to retain the logs of rollout %s", rollout_id, exc_info=True)
        return False
    logger.info("Kept %d log files of rollout %s in %s", count, rollout_id, destination)
    return True


def last_words_of_verifier(trial_dir: Path) -> str | None:
    """The last line that the verifier printed, None when it printed nothing that can be read."""
    output = trial_dir / "verifier" / "test-stdout.txt"
    try:
        _refuse_links(trial_dir.parent, output)
        if not output.is_file():
            return None
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _LAST_WORDS_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def _steps(trial_dir: Path) -> list[Path]:
    steps = trial_dir / "steps"
    if steps.is_symlink() or not steps.is_dir():
        return []
    return sorted(step for step in steps.iterdir() if step.is_dir() and not step.is_symlink())


def _copy_file(source: Path, destination: Path, *, artifact_root: Path) -> int:
    if not source.is_symlink() and not source.exists():
        return 0
    if not stat.S_ISREG(source.lstat().st_mode):
        logger.warning("Skipping %s: only regular files are kept as logs", source)
        return 0
    # Copies nothing, as the source is no folder, but refuses a destination behind a link.
    copy_artifact_tree(source, destination, destination_root=artifact_root)
    destination.parent.mkdir(parents=True, exist_ok=True)
    if destination.is_symlink() or destination.exists():
        _remove(destination)
    shutil.copyfile(source, destination, follow_symlinks=False)
    return 1


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _refuse_links(root: Path, path: Path) -> None:
    folder = root
    for part in path.relative_to(root).parts:
        folder = folder / part
        if folder.is_symlink():
            raise OSError(f"{folder} is a link; nothing is read through it")
