"""Task folders: finding them, copying them, and what a copy is given."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.id import GitTaskId, LocalTaskId, PackageTaskId

from osmosis_ai.rollout.backend.harbor.tasks import (
    SDK_REQUIREMENTS_FILENAME,
    HarborTask,
    parse_task_ref,
    patch_dockerfile_with_sdk,
    venv_or_fallback_install,
    venv_or_fallback_script,
)
from osmosis_ai.rollout.container.files import ContainerInput


def given(**fields: Any) -> ContainerInput:
    return ContainerInput(**{"rollout_id": "r1", "prompt": [], "label": "42", **fields})


def test_the_copy_has_the_prompt_and_the_source_stays(task: Path, tmp_path: Path) -> None:
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "6 x 7"}, {"type": "image_url"}]},
    ]
    before = {path: path.read_bytes() for path in task.rglob("*") if path.is_file()}
    copy = HarborTask(task).materialize(tmp_path / "out", given(prompt=prompt))
    assert copy == tmp_path / "out" / "sum"
    assert (copy / "instruction.md").read_text() == "Be brief.\n\n6 x 7"
    assert json.loads((copy / "container_input.json").read_text())["label"] == "42"
    assert not (copy / "tests").exists()
    assert {path: path.read_bytes() for path in task.rglob("*") if path.is_file()} == before


def test_answers_in_the_prompt_keep_their_roles(task: Path, tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "6 x 7"}, {"role": "assistant", "content": "41"}]
    copy = HarborTask(task).materialize(tmp_path / "out", given(prompt=prompt))
    assert (copy / "instruction.md").read_text() == "user:\n6 x 7\n\nassistant:\n41"


def test_without_a_prompt_the_task_speaks(task: Path, tmp_path: Path) -> None:
    copy = HarborTask(task).materialize(tmp_path / "a", given(), write_input=False)
    assert (copy / "instruction.md").read_text() == "Add the numbers.\n"
    assert not (copy / "container_input.json").exists()
    (task / "instruction.md").unlink()
    with pytest.raises(ValueError, match="no instruction"):
        HarborTask(task).materialize(tmp_path / "b", given())


def test_a_task_without_settings_gets_the_defaults(task: Path, tmp_path: Path) -> None:
    from harbor.models.task.task import Task

    (task / "task.toml").unlink()
    copy = HarborTask(task).materialize(tmp_path / "out", given())
    assert Task(copy, disable_verification=True).instruction == "Add the numbers.\n"


@pytest.mark.parametrize("where", ["tests", "environment/data"])
def test_links_are_refused(task: Path, tmp_path: Path, where: str) -> None:
    (task / where).symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symlink"):
        HarborTask(task).materialize(tmp_path / "out", given())
    assert not (tmp_path / "out").exists()


def test_the_grader_becomes_the_verifier_only_where_there_is_none(task: Path, tmp_path: Path) -> None:
    copy = HarborTask(task).materialize(tmp_path / "a", given(), grader_script="proj-grade")
    script = copy / "tests" / "test.sh"
    assert script.read_text().endswith(venv_or_fallback_script("proj-grade"))
    assert os.access(script, os.X_OK)
    assert ContainerInput.read(copy / "tests" / "container_input.json").label == "42"
    assert sorted(path.name for path in script.parent.iterdir()) == ["container_input.json", "test.sh"]

    (task / "tests").mkdir()
    (task / "tests" / "test.sh").write_text("own")
    copy = HarborTask(task).materialize(
        tmp_path / "b", given(), grader_script="proj-grade", grader_wheel=tmp_path / "x.whl"
    )
    assert [path.name for path in (copy / "tests").iterdir()] == ["test.sh"]
    assert (copy / "tests" / "test.sh").read_text() == "own"


def test_a_native_agents_verifier_brings_the_bundle(task: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "proj-1.0+ab-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    copy = HarborTask(task).materialize(
        tmp_path / "out", given(), grader_script="proj-grade", grader_wheel=wheel
    )
    assert (copy / "tests" / wheel.name).read_bytes() == b"wheel"
    text = (copy / "tests" / "test.sh").read_text()
    assert f"pip install /tests/{wheel.name}" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_scripts_are_found_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "prog").write_text("#!/bin/sh\necho from-path\n")
    (tmp_path / "prog").chmod(0o755)
    run = subprocess.run(
        ["bash", "-c", venv_or_fallback_script("prog")],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "from-path\n"


def test_an_install_without_a_prepared_environment_uses_pip(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$PIP_BREAK_SYSTEM_PACKAGES $*"\n')
    (tmp_path / "python3").chmod(0o755)
    run = subprocess.run(
        ["bash", "-c", venv_or_fallback_install("/x/a.whl")],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "1 -m pip install /x/a.whl\n"


@pytest.mark.parametrize(
    "task_id", ["", ".", "..", "../sum", "absent", "/etc", "a\0b", 7, None, "sum/task.toml"]
)
def test_ids_stay_below_the_root(task: Path, task_id: Any) -> None:
    with pytest.raises(ValueError, match="unknown harbor task id"):
        HarborTask.from_dataset(task.parent, task_id)


def test_an_id_that_is_a_link_out_of_the_root_is_unknown(task: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (task.parent / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="unknown harbor task id"):
        HarborTask.from_dataset(task.parent, "linked")
    assert HarborTask.from_dataset(task.parent, "sum").path == task.resolve()


def test_references(caplog: pytest.LogCaptureFixture) -> None:
    for ref in ("./tasks/a", "../a", "/srv/a", "~/a"):
        assert parse_task_ref(ref, {}) == LocalTaskId(path=Path(ref))
    assert parse_task_ref("org/name@3", None) == PackageTaskId(org="org", name="name", ref="3")
    pinned = {"git_url": "https://git.example/r", "git_commit_id": "abc"}
    assert parse_task_ref("tasks/a", pinned) == GitTaskId(
        git_url="https://git.example/r", git_commit_id="abc", path=Path("tasks/a")
    )
    assert parse_task_ref("./tasks/a", pinned).path == Path("tasks/a")
    assert not caplog.records


@pytest.mark.parametrize(
    ("ref", "metadata", "said"),
    [
        ("org/name", {}, "follows the latest version"),
        ("org/name@latest", {}, "follows the latest version"),
        ("a", {"git_url": "https://git.example/r"}, "is not pinned"),
    ],
)
def test_references_that_may_change_are_warned_about(
    ref: str, metadata: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    parse_task_ref(ref, metadata)
    assert said in caplog.text


@pytest.mark.parametrize(
    ("ref", "metadata", "said"),
    [
        ("name", {}, "must be a local path"),
        ("a/b/c", {}, "must be a local path"),
        ("", {}, "must be a text"),
        (["a"], {}, "must be a text"),
        ("../a", {"git_url": "https://git.example/r"}, "inside the repository"),
        ("/a", {"git_url": "https://git.example/r"}, "inside the repository"),
        ("a", {"git_url": "--upload-pack=touch x"}, "git_url"),
        ("a", {"git_url": "https://git.example/r", "git_commit_id": "-x"}, "git_commit_id"),
    ],
)
def test_other_references_are_refused(ref: Any, metadata: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_task_ref(ref, metadata)


@pytest.fixture
def env_dir(task: Path) -> Path:
    return task / "environment"


def patched(env_dir: Path, dockerfile: str) -> str:
    (env_dir / "Dockerfile").write_text(dockerfile)
    patch_dockerfile_with_sdk(env_dir, ["pydantic>=2", "httpx"])
    return (env_dir / "Dockerfile").read_text()


def test_the_image_gets_an_environment(env_dir: Path) -> None:
    (env_dir / ".dockerignore").write_text("*")
    text = patched(env_dir, "FROM debian:12-slim\n")
    assert text.startswith("FROM debian:12-slim\n")
    assert "uv venv /opt/osmosis/venv --python 3.12" in text
    assert text.count("USER root") == 1
    assert (env_dir / SDK_REQUIREMENTS_FILENAME).read_text() == "pydantic>=2\nhttpx\n"
    assert (env_dir / ".dockerignore").read_text() == "*\n!osmosis-requirements.txt\n"


@pytest.mark.parametrize(
    ("dockerfile", "user"),
    [
        ("FROM a\nUSER app\nRUN x", "app"),
        ("FROM a\nuser root\nUSER app:grp\n", "app:grp"),
        ("FROM a AS base\nUSER app\nFROM base\nRUN x\n", "app"),
        ("FROM a AS base\nUSER app\nFROM 0 AS last\n", "app"),
        ("FROM a AS base\nUSER app\nFROM b\n", None),
        ("FROM a\nUSER app\nRUN <<EOF\nUSER fake\nEOF\n", "app"),
        ("FROM a\n# USER fake\nUSER app\nRUN echo \\\n# note\nUSER fake\n", "app"),
        ("FROM --platform=linux/amd64 a\nUSER ${NAME}\n", "${NAME}"),
    ],
)
def test_the_stages_user_comes_back(env_dir: Path, dockerfile: str, user: str | None) -> None:
    last = patched(env_dir, dockerfile).strip().splitlines()[-1]
    assert last == f"USER {user}" if user else last.startswith(" && ")


@pytest.mark.parametrize("native", [False, True])
def test_only_a_verifier_that_installs_the_bundle_may_write_the_environment(
    task: Path, tmp_path: Path, native: bool
) -> None:
    (task / "environment" / "Dockerfile").write_text("FROM a\nUSER app\n")
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"")
    copy = HarborTask(task).materialize(
        tmp_path / "out",
        given(),
        grader_script="proj-grade",
        grader_wheel=wheel if native else None,
        sdk_requirements=["a"],
    )
    text = (copy / "environment" / "Dockerfile").read_text()
    assert ("chmod -R a+rwX /opt/osmosis/venv" in text) is native
    assert text.endswith("USER app\n")


def test_a_stage_of_root_needs_no_switch(env_dir: Path) -> None:
    text = patched(env_dir, "FROM a\nUSER root\n")
    assert text.count("USER root") == 1
    assert "USER" not in text.strip().splitlines()[-1]


def test_without_a_dockerfile_there_is_nothing_to_patch(env_dir: Path) -> None:
    (env_dir / "Dockerfile").unlink()
    with pytest.raises(ValueError, match="cannot patch Dockerfile"):
        patch_dockerfile_with_sdk(env_dir, "a\n")
    assert not (env_dir / SDK_REQUIREMENTS_FILENAME).exists()
