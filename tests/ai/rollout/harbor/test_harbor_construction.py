"""Which arguments the backend takes, and what follows from them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trial.config import EnvironmentConfig

import osmosis_ai.rollout.backend.harbor as facade
from osmosis_ai.packaging import build_bundle
from osmosis_ai.rollout.backend.harbor import HarborBackend, TaskMode
from osmosis_ai.rollout.backend.harbor.backend import MIGRATION_DOCS_URL

type MakeBench = Callable[..., Any]


def test_the_facade() -> None:
    assert facade.__all__ == ["HarborBackend", "TaskMode"]
    assert {"HarborBackend", "TaskMode"} <= set(dir(facade))
    assert TaskMode("template") is TaskMode.TEMPLATE
    with pytest.raises(
        AttributeError, match=r"'osmosis_ai.rollout.backend.harbor' has no attribute 'nothing'"
    ):
        _ = facade.nothing


def test_arguments_of_before_say_what_replaces_them() -> None:
    with pytest.raises(TypeError, match="no longer takes _sdk_source_dir, task_dir, workflow") as caught:
        HarborBackend(workflow="a:b", task_dir=Path("t"), _sdk_source_dir=None, orchestrator=None)  # type: ignore[call-arg]
    assert MIGRATION_DOCS_URL in str(caught.value)
    page, anchor = MIGRATION_DOCS_URL.split("#")
    root = Path(__file__).parents[4]
    headings = [
        line.lstrip("# ").strip().lower().replace(".", "").replace(" ", "-")
        for line in (root / page).read_text().splitlines()
        if line.startswith("#")
    ]
    assert anchor in headings


def test_unknown_arguments_are_refused(bench: MakeBench) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        bench(nothing=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_queue_depth": 0}, "max_queue_depth"),
        ({"max_queue_depth": -1}, "max_queue_depth"),
        ({"agent": None}, "only with a prebuilt bundle"),
        ({"agent": "claude"}, "unknown native agent"),
        ({"native_agent_kwargs": {"a": 1}}, "native_agent_kwargs"),
        ({"agent": "oracle", "workflow_config": "a:b"}, "workflow_config"),
        ({"agent": "oracle", "patch_dockerfile_with_sdk": True}, "requires a bundle"),
        ({"task_mode": "both"}, "both"),
        ({"agent": "nowhere_at_all:A", "code_dir": None}, "pass code_dir= or bundle="),
    ],
)
def test_contradictions_are_refused(bench: MakeBench, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bench(**arguments)


def test_the_project_is_found_around_the_class(bench: MakeBench, importable: Any) -> None:
    backend = bench(agent=importable.Solver, grader=importable.Exact, code_dir=None).backend
    assert backend.bundle.agent_script == "harbor-agent-agent"
    assert backend.bundle.grader_script == "harbor-agent-grade"
    assert backend.health()["agent"] == "harbor_agent:Solver"


def test_a_prebuilt_bundle_is_enough(bench: MakeBench, project: Path) -> None:
    wheel = build_bundle(project, workflow="harbor_agent:Solver")
    backend = bench(agent=None, bundle=wheel).backend
    assert backend.health() == {
        "status": "ok",
        "backend": "harbor",
        "agent": "builtins:None",
        "in_flight": 0,
        "running": 0,
        "queued": 0,
        "max_queue_depth": None,
    }
    with pytest.raises(ValueError, match="without a grader"):
        bench(bundle=wheel, grader="harbor_agent:Exact")
    graders = build_bundle(project, grader="harbor_agent:Exact")
    with pytest.raises(ValueError, match="no agent program"):
        bench(agent=None, bundle=graders)


def test_images_are_patched_where_there_is_a_bundle(bench: MakeBench) -> None:
    assert bench().backend.sdk_requirements
    assert bench(patch_dockerfile_with_sdk=False).backend.sdk_requirements is None
    assert bench(agent="terminus-2").backend.sdk_requirements is None
    assert bench(agent="terminus-2", grader="harbor_agent:Exact").backend.sdk_requirements


def test_the_environment_is_a_copy(bench: MakeBench) -> None:
    given = EnvironmentConfig(import_path="a:B", kwargs={"x": {"y": 1}})
    backend = bench(environment_config=given).backend
    given.kwargs["x"]["y"] = 2
    assert backend.environment_config.kwargs == {"x": {"y": 1}}


def test_the_oracle_is_not_for_training(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    assert bench(agent="oracle").backend.capture_final_result
    assert "not trainable" in caplog.text


def test_without_harbor_the_error_says_what_to_install() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "harbor":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import osmosis_ai.rollout.backend.harbor as facade
try:
    facade.HarborBackend
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.startswith("harbor ")
    assert 'pip install "osmosis-ai[harbor]"' in run.stdout
