"""Bundles: wheels with a project's package, the SDK and two programs."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from uv import find_uv_bin

from osmosis_ai.packaging import BundleError, BundleInfo, build_bundle, inspect_bundle
from osmosis_ai.rollout.container.files import ContainerInput, ContainerResult

AGENT = """
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, Grader
from my_agent.parts.words import WORD

class Config(AgentWorkflowConfig):
    name: str = "multiplier"

config = Config()

class Workflow(AgentWorkflow):
    async def run(self, ctx):
        return [*ctx.prompt, {"role": "assistant", "content": f"{WORD} from {ctx.config.name}"}]

class Exact(Grader):
    async def grade(self, ctx):
        ctx.set_reward(ctx.sample.messages[-1]["content"] == ctx.label)
"""
PYPROJECT = """
[project]
name = "My.Agent"
version = "1.2"
requires-python = ">=3.12"
dependencies = ["osmosis-ai[server,strands,harbor]>=0.3,<0.4", "numpy>=2"]
"""
REFS = {
    "workflow": "my_agent.agent:Workflow",
    "workflow_config": "my_agent.agent:config",
    "grader": "my_agent.agent:Exact",
}

type Make = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    package = folder / "src" / "my_agent"
    (package / "parts").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").touch()
    (package / "agent.py").write_text(AGENT)
    (package / "parts" / "words.py").write_text('WORD = "hello"\n')
    (package / "parts" / "data.bin").write_bytes(b"\x00\xff")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "agent.cpython-312.pyc").write_bytes(b"x")
    return folder


@pytest.fixture
def make(project: Path, tmp_path: Path) -> Make:
    def build(**changes: object) -> Path:
        return build_bundle(project, **{**REFS, "bundles_dir": tmp_path / "bundles", **changes})

    return build


def test_a_bundle_says_what_it_holds(make: Make) -> None:
    wheel = make()
    info = inspect_bundle(wheel)
    assert info == BundleInfo(wheel, "my-agent-agent", "my-agent-grade", info.requirements)
    names = [text.split(">")[0].split("<")[0] for text in info.requirements]
    assert {"pydantic", "httpx", "strands-agents", "numpy"} <= set(names)
    assert not {"fastapi", "harbor", "osmosis-ai"} & set(names)
    with zipfile.ZipFile(wheel) as archive:
        members = archive.namelist()
        assert archive.read("my_agent/parts/data.bin") == b"\x00\xff"
    assert "osmosis_ai/rollout/container/runner.py" in members
    assert not [name for name in members if "__pycache__" in name]


def test_only_the_programs_that_were_asked_for(make: Make) -> None:
    only_agent = inspect_bundle(make(grader=None))
    assert (only_agent.agent_script, only_agent.grader_script) == ("my-agent-agent", None)
    only_grader = inspect_bundle(make(workflow=None, workflow_config=None))
    assert (only_grader.agent_script, only_grader.grader_script) == (None, "my-agent-grade")


def test_the_same_content_is_the_same_file(make: Make, project: Path) -> None:
    first = make()
    written = first.stat().st_mtime_ns
    (project / "README.md").write_text("not part of the package")
    assert make() == first
    assert first.stat().st_mtime_ns == written
    (project / "src" / "my_agent" / "parts" / "data.bin").write_bytes(b"\x00\xfe")
    second = make()
    assert second != first
    assert make(grader=None) not in {first, second}
    assert make(deps=["numpy==2.1"]) not in {first, second}
    assert sorted(path.suffix for path in first.parent.iterdir()) == [".whl"] * 4


def test_the_bytes_do_not_depend_on_time_and_place(make: Make, tmp_path: Path) -> None:
    first = make()
    again = make(bundles_dir=tmp_path / "elsewhere")
    assert again.name == first.name
    assert again.read_bytes() == first.read_bytes()


def test_the_user_cache_is_the_default_place(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert make(bundles_dir=None).parent == tmp_path / "cache" / "osmosis" / "bundles"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert make(bundles_dir=None).parent == tmp_path / "home" / ".cache" / "osmosis" / "bundles"


def test_given_dependencies_replace_those_of_the_project(make: Make, project: Path) -> None:
    assert "numpy>=2" in inspect_bundle(make()).requirements
    given = inspect_bundle(make(deps=["pandas>2"])).requirements
    assert "pandas>2" in given
    assert "numpy>=2" not in given
    (project / "pyproject.toml").write_text('[project]\nname = "x"\ndynamic = ["dependencies", "version"]\n')
    with pytest.raises(BundleError, match="leaves its dependencies to the build"):
        make()
    assert inspect_bundle(make(deps=[])).agent_script == "my-agent-agent"


def test_a_flat_project_without_a_project_table(project: Path, make: Make) -> None:
    (project / "pyproject.toml").write_text("")
    (project / "src" / "my_agent").rename(project / "my_agent")
    assert make().name.startswith("my_agent-0+")


def break_pyproject(project: Path) -> None:
    (project / "pyproject.toml").unlink()


def break_toml(project: Path) -> None:
    (project / "pyproject.toml").write_text("[project")


def break_version(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\nversion = "one"\n')


def break_dependency(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\ndependencies = ["not a requirement!"]\n')


def remove_package(project: Path) -> None:
    (project / "src" / "my_agent" / "__init__.py").unlink()


def add_package(project: Path) -> None:
    (project / "src" / "other").mkdir()
    (project / "src" / "other" / "__init__.py").touch()


def link_folder(project: Path) -> None:
    (project / "shared").mkdir()
    (project / "src" / "my_agent" / "shared").symlink_to(project / "shared")


def link_package(project: Path) -> None:
    (project / "src" / "my_agent").rename(project / "real")
    (project / "src" / "my_agent").symlink_to(project / "real")


def link_outside(project: Path) -> None:
    (project / "src" / "my_agent" / "secret").symlink_to("/etc/passwd")


def add_pipe(project: Path) -> None:
    os.mkfifo(project / "src" / "my_agent" / "pipe")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_pyproject, "no pyproject.toml"),
        (break_toml, "cannot read"),
        (break_version, "project.version"),
        (break_dependency, "not a requirement!"),
        (remove_package, "no Python package"),
        (add_package, r"several packages \(my_agent, other\)"),
        (link_folder, "directory symlink"),
        (link_package, "directory symlink"),
        (link_outside, "leads out of the project"),
        (add_pipe, "no regular file"),
    ],
)
def test_a_project_that_cannot_be_packed(
    project: Path, make: Make, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(project)
    with pytest.raises(BundleError, match=message):
        make()
    assert not list(tmp_path.glob("bundles/*"))


def test_the_package_can_be_named(project: Path, make: Make) -> None:
    add_package(project)
    assert inspect_bundle(make(package="my_agent")).agent_script == "my-agent-agent"
    with pytest.raises(BundleError, match="no package 'third'"):
        make(package="third")


@pytest.mark.parametrize(
    ("refs", "message"),
    [
        ({"workflow": None, "grader": None}, "needs a workflow, a grader, or both"),
        ({"workflow": "my_agent.agent"}, "workflow: .*module:attr"),
        ({"workflow": "my_agent.nothing:Workflow"}, "is not in the package 'my_agent'"),
        ({"grader": "elsewhere:Exact"}, "grader 'elsewhere:Exact' is not in the package"),
        ({"workflow_config": object()}, "workflow_config: Cannot resolve import path"),
    ],
)
def test_references_that_lead_nowhere(make: Make, refs: dict[str, object], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        make(**refs)


def test_classes_can_be_given_instead_of_texts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = type("Workflow", (), {"__module__": "my_agent.agent", "__qualname__": "Workflow"})
    assert make(workflow=workflow) == make()


def test_what_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with pytest.raises(BundleError, match="is no bundle"):
        inspect_bundle(path)
    path.write_text("text")
    with pytest.raises(BundleError, match="is no bundle"):
        inspect_bundle(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", "Name: a\n")
        archive.writestr("a-1.dist-info/entry_points.txt", "[console_scripts]\nother = a:b\n")
    with pytest.raises(BundleError, match="no -agent and no -grade program"):
        inspect_bundle(path)


def test_the_installed_programs_run_with_the_sdk_of_the_bundle(make: Make, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    subprocess.run(
        [find_uv_bin(), "pip", "install", "--quiet", "--offline", "--no-deps", "--no-cache",
         "--python", sys.executable, "--target", str(target), str(make())],
        check=True,
        capture_output=True,
        timeout=120,
    )  # fmt: skip
    logs = tmp_path / "logs"
    ContainerInput(
        rollout_id="r1", prompt=[{"role": "user", "content": "hi"}], label="hello from multiplier"
    ).write(logs / "container_input.json")
    for script in ("my-agent-agent", "my-agent-grade"):
        assert os.access(target / "bin" / script, os.X_OK)
        code = f"""
import pathlib, runpy
import osmosis_ai
assert osmosis_ai.__file__.startswith({str(target)!r}), osmosis_ai.__file__
from osmosis_ai.rollout.container import files, runner
logs = pathlib.Path({str(logs)!r})
runner.AGENT_LOGS_DIR = runner.VERIFIER_LOGS_DIR = files.VERIFIER_LOGS_DIR = logs
runner.HARBOR_ARTIFACTS_DIR = logs / "artifacts"
try:
    runpy.run_path({str(target / "bin" / script)!r}, run_name="__main__")
except SystemExit as ended:
    assert not ended.code
"""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(target)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    result = ContainerResult.read(logs / "container_result.json")
    assert (result.status, result.err_message) == ("success", None)
    assert json.loads((logs / "reward.json").read_text()) == {"reward": 1.0}


def test_without_the_extra_the_access_says_how_to_install_it() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "harbor":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import osmosis_ai.packaging as packaging
print(sorted({"build_bundle", "inspect_bundle"} & set(dir(packaging))))
try:
    packaging.build_bundle
except ModuleNotFoundError as error:
    print(error.name, error)
try:
    packaging.nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    names, missing, unknown = done.stdout.splitlines()
    assert names == "['build_bundle', 'inspect_bundle']"
    assert missing.startswith("harbor ")
    assert 'pip install "osmosis-ai[harbor]"' in missing
    assert unknown == "module 'osmosis_ai.packaging' has no attribute 'nothing'"
