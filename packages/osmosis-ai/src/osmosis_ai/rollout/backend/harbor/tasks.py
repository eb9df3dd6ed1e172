"""Harbor tasks: where they come from, and the copy of one that a rollout runs on."""

import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.models.task.id import GitTaskId, LocalTaskId, PackageTaskId

from osmosis_ai.rollout.backend.harbor.fetching import public_address
from osmosis_ai.rollout.backend.harbor.image import (
    SDK_REQUIREMENTS_FILENAME,
    patch_dockerfile_with_sdk,
    venv_or_fallback_install,
    venv_or_fallback_script,
)
from osmosis_ai.rollout.container.files import INPUT_FILENAME, ContainerInput
from osmosis_ai.rollout.types.sample import MessageDict

__all__ = [
    "SDK_REQUIREMENTS_FILENAME",
    "HarborTask",
    "TaskMode",
    "parse_task_ref",
    "patch_dockerfile_with_sdk",
    "venv_or_fallback_install",
    "venv_or_fallback_script",
]

logger = logging.getLogger(__name__)

INSTRUCTION_FILENAME = "instruction.md"
# Every setting of a task has a default, but Harbor wants the file.
_DEFAULT_TASK_TOML = 'schema_version = "1.3"\n'
_PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*)(?:@(\S+))?")


class TaskMode(StrEnum):
    """How ``tasks_dir`` is read: as one task whose instruction the prompt replaces, or as a folder of finished tasks."""

    TEMPLATE = "template"
    DATASET = "dataset"


@dataclass(frozen=True)
class HarborTask:
    """A task's folder. It is never changed: rollouts run on copies."""

    path: Path

    @classmethod
    def from_dataset(cls, root: Path, task_id: Any) -> "HarborTask":
        """The task of that id below the root.

        Raises:
            ValueError: when there is none, or the id leads out of the root.
        """
        unknown = ValueError(f"unknown harbor task id {task_id!r}: not a task folder below {root}")
        if not isinstance(task_id, str) or not task_id:
            raise unknown
        base = root.resolve()
        try:
            path = (base / task_id).resolve()
            if base not in path.parents or not path.is_dir():
                raise unknown
        except (OSError, ValueError) as error:
            raise unknown from error
        return cls(path)

    def has_instruction(self) -> bool:
        """Whether the task, or a step of it, says what to do."""
        return (self.path / INSTRUCTION_FILENAME).is_file() or any(
            self.path.glob(f"steps/*/{INSTRUCTION_FILENAME}")
        )

    def materialize(
        self,
        out_dir: Path,
        container_input: ContainerInput,
        grader_script: str | None = None,
        grader_wheel: Path | None = None,
        sdk_requirements: str | Iterable[str] | None = None,
        write_input: bool = True,
    ) -> Path:
        """Copy the task to ``<out_dir>/<task name>`` and prepare it for one rollout; returns the copy.

        The prompt, when there is one, becomes the instruction. ``write_input`` leaves the input for the agent program.
        ``grader_script`` becomes the verifier of a task without a ``tests/test.sh``; ``grader_wheel`` is installed first,
        for agents that do not bring it. ``sdk_requirements`` go into the image.

        Raises:
            ValueError: for links in the task, a task without instruction and prompt, or an image that cannot be patched.
        """
        self._check()
        if not container_input.prompt and not self.has_instruction():
            raise ValueError(
                f"no instruction: the request has no prompt and {self.path} has no {INSTRUCTION_FILENAME}"
            )
        task_dir = out_dir / self.path.resolve().name
        shutil.copytree(self.path, task_dir)
        if container_input.prompt:
            text = instruction_text(container_input.prompt)
            (task_dir / INSTRUCTION_FILENAME).write_text(text, encoding="utf-8")
        if not (task_dir / "task.toml").exists():
            (task_dir / "task.toml").write_text(_DEFAULT_TASK_TOML, encoding="utf-8")
        if write_input:
            container_input.write(task_dir / INPUT_FILENAME)
        if grader_script is not None and not (task_dir / "tests" / "test.sh").exists():
            _write_verifier(task_dir / "tests", container_input, grader_script, grader_wheel)
        if sdk_requirements is not None:
            # A wheel that is not installed with the agent is installed by the verifier, which may not be root.
            patch_dockerfile_with_sdk(
                task_dir / "environment", sdk_requirements, writable=grader_wheel is not None
            )
        return task_dir

    def _check(self) -> None:
        if not self.path.is_dir():
            raise ValueError(f"{self.path} is not the folder of a task")
        for path in (self.path, *self.path.rglob("*")):
            if path.is_symlink():
                raise ValueError(
                    f"the task folder has a symlink, which a copy would follow out of it: {path}; replace it by a file"
                )


def parse_task_ref(ref: Any, metadata: Mapping[str, Any] | None) -> LocalTaskId | PackageTaskId | GitTaskId:
    """The id of the task that ``metadata["harbor_task"]`` names.

    With ``git_url`` in the metadata it is a path inside that repository, at ``git_commit_id`` if there is one. Otherwise it
    is a local path starting with ``.``, ``/`` or ``~``, or a package ``org/name[@ref]``. Names whose content may change are
    warned about.

    Raises:
        ValueError: when it is none of these.
    """
    if not isinstance(ref, str) or not ref:
        raise ValueError(f"metadata['harbor_task'] must be a text that names a task, got {ref!r}")
    given = metadata or {}
    if given.get("git_url") is not None:
        return _git_task(ref, given["git_url"], given.get("git_commit_id"))
    if ref.startswith((".", "/", "~")):
        return LocalTaskId(path=Path(ref))
    package = _PACKAGE.fullmatch(ref)
    if package is None:
        raise ValueError(
            f"harbor task {ref!r} must be a local path starting with '.', '/' or '~', a package 'org/name[@ref]', or come with "
            "metadata['git_url']"
        )
    org, name, version = package.groups()
    if version in (None, "latest"):
        logger.warning(
            "Harbor task %s follows the latest version, which may change between rollouts; pin it: %s/%s@<version>",
            ref,
            org,
            name,
        )
    return PackageTaskId(org=org, name=name, ref=version)


def _git_task(ref: str, url: Any, commit: Any) -> GitTaskId:
    # A value with a leading dash would be an option to git.
    if not isinstance(url, str) or not url or url.startswith("-"):
        raise ValueError("metadata['git_url'] must be the address of a repository")
    if commit is not None and (not isinstance(commit, str) or not commit or commit.startswith("-")):
        raise ValueError(f"metadata['git_commit_id'] must be a commit, got {commit!r}")
    path = PurePosixPath(ref)
    if path.is_absolute() or ".." in path.parts or ref.startswith("~"):
        raise ValueError(f"harbor task {ref!r} must be a path inside the repository")
    if commit is None:
        logger.warning(
            "Harbor task %s of %s is not pinned and may change; set metadata['git_commit_id']",
            ref,
            public_address(url),
        )
    return GitTaskId(git_url=url, git_commit_id=commit, path=Path(path))


def instruction_text(prompt: Iterable[MessageDict]) -> str:
    """Chat messages as one text: their contents, under their roles where an answer or a tool result is among them."""
    messages = list(prompt)
    plain = all(message.get("role") in ("system", "user") for message in messages)
    parts = [_content_text(message.get("content")) for message in messages]
    if not plain:
        parts = [f"{message.get('role')}:\n{part}" for message, part in zip(messages, parts, strict=True)]
    return "\n\n".join(part for part in parts if part)


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        texts = (item.get("text") if isinstance(item, Mapping) else item for item in content)
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _write_verifier(tests: Path, container_input: ContainerInput, script: str, wheel: Path | None) -> None:
    tests.mkdir(exist_ok=True)
    container_input.write(tests / INPUT_FILENAME)
    lines = ["#!/bin/bash", "set -eu"]
    if wheel is not None:
        shutil.copyfile(wheel, tests / wheel.name)
        lines.append(venv_or_fallback_install(f"/tests/{wheel.name}"))
    lines.append(venv_or_fallback_script(script))
    test = tests / "test.sh"
    test.write_text("\n".join(lines), encoding="utf-8")
    test.chmod(0o755)
