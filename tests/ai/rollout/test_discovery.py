"""Discovery of a rollout entrypoint in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, Grader
from osmosis_ai.rollout.discovery import discover_rollout
from osmosis_ai.rollout.validator import resolved_agent_name, validate_backend

GOOD = """
from abc import abstractmethod
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, Grader, LocalBackend
from parts.grading import MyGrader

class Base(AgentWorkflow):
    @abstractmethod
    def tool(self): ...

class MyWorkflow(Base):
    def tool(self): ...
    async def run(self, ctx): ...

Same = MyWorkflow
config = AgentWorkflowConfig(name=" searcher ")
backend = LocalBackend(workflow=MyWorkflow, workflow_config=config, grader=MyGrader)
print("noise on stdout")
"""
GRADING = """
from osmosis_ai.rollout import Grader
class MyGrader(Grader):
    async def grade(self, ctx): ...
"""


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "grading.py").write_text(GRADING)
    (tmp_path / "main.py").write_text(GOOD)
    return tmp_path


def run(rollout: Path, entrypoint: str = "main.py") -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "osmosis_ai.rollout.discovery", str(rollout), entrypoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert len(done.stdout.splitlines()) == 1, done.stderr
    return done.returncode, json.loads(done.stdout)


def codes(result: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in result["problems"]]


def test_usable_rollout(rollout: Path) -> None:
    status, result = run(rollout)
    assert status == 0
    assert result == {
        "ok": True,
        "agent_name": "searcher",
        "workflow": "MyWorkflow",
        "workflow_config": " searcher ",
        "grader": "MyGrader",
        "grader_config": None,
        "problems": [],
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("class Other(MyWorkflow): ...", ["MULTIPLE_WORKFLOWS"]),
        ("class Other(MyGrader): ...", ["MULTIPLE_GRADERS"]),
        ("second = AgentWorkflowConfig(name='b')", ["MULTIPLE_WORKFLOW_CONFIGS"]),
        (
            "from osmosis_ai.rollout import GraderConfig\na, b = GraderConfig(name='a'), GraderConfig(name='b')",
            ["MULTIPLE_GRADER_CONFIGS"],
        ),
        ("del MyGrader", ["MISSING_GRADER"]),
        ("del MyWorkflow, Same", ["WORKFLOW_NOT_FOUND"]),
        ("MyWorkflow.run = lambda self, ctx: None", ["WORKFLOW_RUN_NOT_ASYNC"]),
        ("MyGrader.grade = lambda self, ctx: None", ["GRADER_GRADE_NOT_ASYNC"]),
        ("MyWorkflow.__init__ = lambda self: None", ["WORKFLOW_INIT_FAILED"]),
        ("MyGrader.__init__ = lambda self: None", ["GRADER_INIT_FAILED"]),
        ("config.name = 'x' * 257", ["INVALID_AGENT_NAME"]),
        ("raise SystemExit(3)", ["IMPORT_FAILED"]),
        ("import module_nobody_has", ["MISSING_DEPENDENCY"]),
    ],
)
def test_problems(rollout: Path, addition: str, expected: list[str]) -> None:
    (rollout / "main.py").write_text(GOOD + addition)
    found = discover_rollout(rollout, "main.py")
    assert [problem.code for problem in found.problems] == expected
    assert not found.ok


def test_import_errors_name_the_line(rollout: Path) -> None:
    (rollout / "main.py").write_text("x = 1\nraise ValueError('bad setup')\n")
    status, result = run(rollout)
    assert (status, codes(result)) == (1, ["IMPORT_FAILED"])
    assert "ValueError: bad setup (main.py, line 2)" in result["problems"][0]["message"]


def test_syntax_errors_name_the_file_within_the_rollout(rollout: Path) -> None:
    (rollout / "main.py").write_text("import parts.grading\n")
    (rollout / "parts" / "grading.py").write_text("x = 1\ndef f(:\n")
    _, result = run(rollout)
    message = result["problems"][0]["message"]
    assert message.endswith("SyntaxError: invalid syntax (parts/grading.py, line 2)")


@pytest.mark.parametrize(
    ("entrypoint", "code"),
    [
        ("missing.py", "ENTRYPOINT_NOT_FOUND"),
        ("../main.py", "INVALID_ENTRYPOINT"),
        ("/etc/passwd", "INVALID_ENTRYPOINT"),
        ("main.txt", "INVALID_ENTRYPOINT"),
        ("", "INVALID_ENTRYPOINT"),
        ("escape.py", "INVALID_ENTRYPOINT"),
    ],
)
def test_entrypoints_stay_inside_their_folder(rollout: Path, entrypoint: str, code: str) -> None:
    (rollout / "escape.py").symlink_to(Path(__file__))
    assert [problem.code for problem in discover_rollout(rollout, entrypoint).problems] == [code]
    assert [problem.code for problem in discover_rollout(rollout / "no", "main.py").problems] == [
        "ROLLOUT_NOT_FOUND"
    ]


def test_another_backend_decides_what_runs(rollout: Path) -> None:
    (rollout / "main.py").write_text(
        "from osmosis_ai.rollout import ExecutionBackend\n"
        "class Remote(ExecutionBackend):\n    async def execute(self, *a): ...\n"
    )
    found = discover_rollout(rollout, "main.py")
    assert found.ok
    assert [warning.code for warning in found.warnings] == ["WORKFLOW_NOT_FOUND", "MISSING_GRADER"]


def test_all_problems_are_reported_at_once() -> None:
    class Sync(AgentWorkflow):
        def __init__(self, config: Any) -> None:
            raise RuntimeError("no")

        def run(self, ctx: Any) -> None: ...  # type: ignore[override]

    result = validate_backend(Sync, AgentWorkflowConfig(name="x" * 300))
    assert not result.valid
    assert [(error.code, error.field) for error in result.errors] == [
        ("WORKFLOW_RUN_NOT_ASYNC", "workflow_cls.run"),
        ("WORKFLOW_INIT_FAILED", "workflow_cls"),
        ("INVALID_AGENT_NAME", "name"),
        ("MISSING_GRADER", "grader_cls"),
    ]
    for cls in (AgentWorkflow, int, "text"):
        assert validate_backend(cls, None, Grader).errors[0].code == "INVALID_WORKFLOW_CLASS"
    assert [error.code for error in validate_backend(int, None, Grader).errors] == [
        "INVALID_WORKFLOW_CLASS",
        "INVALID_GRADER_CLASS",
    ]
    assert resolved_agent_name(Sync, AgentWorkflowConfig(name="  ")) == "Sync"
