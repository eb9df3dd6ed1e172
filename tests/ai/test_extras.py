"""What works without the optional extras, and what is said where one is missing. Absent modules are blocked in a fresh process."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import osmosis_ai
from osmosis_ai.extras import EXTRA_MODULES
from osmosis_ai.lazy_facade import lazy_facade

OPTIONAL = sorted({module for modules in EXTRA_MODULES.values() for module in modules} | {"mcp"})

BLOCK = f"""
import json, sys
OPTIONAL = {OPTIONAL!r}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def fresh(code: str) -> Any:
    """What the code prints, as JSON, in a process without any optional module."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCK + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_what_needs_nothing_but_the_base() -> None:
    modules = [
        *("cli.main", "cli.running", "datasets.validation", "config", "eval.rubric", "eval.rubric.report"),
        *("rollout", "rollout.server", "rollout.controller", "rollout.backend.harbor", "packaging"),
        *("rollout.container.files", "rollout.container.runner", "rollout.container.trajectories"),
        *("rollout.trajectory.atif", "rollout.trajectory.converter", "rollout.trajectory.save"),
        *("rollout.types.output", "rollout.types.protocol"),
        *("rollout.utils.errors", "rollout.utils.ttl_cache"),
        *("rollout.controller.store", "rollout.driver", "rollout.http_driver"),
    ]
    code = f"""
import importlib
for name in {modules!r}:
    importlib.import_module("osmosis_ai." + name)
from osmosis_ai import *
print(json.dumps([RubricResult.__name__, ProviderRequestError.__name__, "evaluate_rubric" in globals()]))
"""
    assert fresh(code) == ["RubricResult", "ProviderRequestError", False]


FACADES = {
    "osmosis_ai:evaluate_rubric": "rubric",
    "osmosis_ai.eval.rubric:evaluate_rubric": "rubric",
    "osmosis_ai.rollout.server:create_rollout_server": "server",
    "osmosis_ai.rollout.controller:RolloutController": "server",
    "osmosis_ai.rollout.controller:create_bridge_router": "server",
    "osmosis_ai.rollout.backend.harbor:HarborBackend": "harbor",
    "osmosis_ai.rollout.backend.harbor:TaskMode": "harbor",
    "osmosis_ai.packaging:build_bundle": "harbor",
    "osmosis_ai.rollout.integrations.agents.strands:": "strands",
    "osmosis_ai.rollout.integrations.agents.openai_agents:": "openai-agents",
}


def test_each_facade_names_the_extra_that_is_missing() -> None:
    """Twice: the first failed access leaves nothing behind that would hide the second."""
    code = f"""
import importlib
def attempt(where):
    module, _, name = where.partition(":")
    try:
        getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        return [error.name, str(error)]
print(json.dumps([[attempt(where) for where in {list(FACADES)!r}] for _ in range(2)]))
"""
    for answers in fresh(code):
        for (where, extra), (missing, text) in zip(FACADES.items(), answers, strict=True):
            assert missing in EXTRA_MODULES[extra], (where, text)
            assert f'pip install "osmosis-ai[{extra}]"' in text, where


def test_the_commands_name_the_extra_too() -> None:
    code = """
import io, contextlib
from osmosis_ai.cli.main import main
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    status = main(["--json", "eval", "rubric", "-d", "x", "-r", "r", "--model", "m"])
print(json.dumps([status, out.getvalue(), json.loads(err.getvalue())["error"]]))
"""
    status, out, error = fresh(code)
    assert (status, out, error["code"]) == (1, "", "VALIDATION")
    assert 'pip install "osmosis-ai[rubric]"' in error["message"]


@pytest.mark.parametrize("extra", sorted(EXTRA_MODULES))
def test_extras_of_the_distribution(extra: str) -> None:
    project = Path(__file__).parents[2] / "packages/osmosis-ai/pyproject.toml"
    declared = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert set(declared) == {*EXTRA_MODULES, "full"}
    (full,) = declared["full"]
    assert extra in full.partition("[")[2].strip("]").split(",")
    assert f"| `{extra}` |" in project.with_name("README.md").read_text()


@pytest.fixture
def facade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A facade over two leaves: one is fine, one lacks the module that its text names."""
    (tmp_path / "facade_under_test.py").write_text("")
    (tmp_path / "good_leaf.py").write_text("loads = 0\nthing = object()\n")
    (tmp_path / "bad_leaf.py").write_text("import module_of_nobody.part\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import facade_under_test as module

    exports = {"thing": "good_leaf", "broken": "bad_leaf"}
    module.__getattr__, module.__dir__ = lazy_facade("facade_under_test", exports, needs="server")
    yield module
    for name in ("facade_under_test", "good_leaf", "bad_leaf"):
        sys.modules.pop(name, None)


def test_a_name_is_loaded_at_its_first_use_and_kept(facade: Any) -> None:
    assert {"thing", "broken"} <= set(dir(facade))
    assert "good_leaf" not in sys.modules
    assert facade.thing is sys.modules["good_leaf"].thing
    assert vars(facade)["thing"] is facade.thing


def test_an_unknown_name_is_an_attribute_error(facade: Any) -> None:
    with pytest.raises(AttributeError, match=r"^module 'facade_under_test' has no attribute 'nothing'$"):
        _ = facade.nothing


def test_a_missing_module_of_nobody_is_raised_as_it_is(facade: Any) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        _ = facade.broken
    assert type(caught.value) is ModuleNotFoundError
    assert (caught.value.name, "osmosis-ai" in str(caught.value)) == ("module_of_nobody", False)


def test_names_of_the_package() -> None:
    assert set(osmosis_ai.__all__) == {
        *("__version__", "RubricResult"),
        *("MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError"),
    }
    assert {*osmosis_ai.__all__, "evaluate_rubric"} <= set(dir(osmosis_ai))
    assert "rollout" not in osmosis_ai.__all__
