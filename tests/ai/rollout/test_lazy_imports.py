"""What importing the SDK loads, and what a missing extra says. Each case is a fresh interpreter."""

import subprocess
import sys

import pytest

import osmosis_ai.rollout

HEAVY = ("agents", "fastapi", "harbor", "litellm", "strands", "uvicorn", "openai")


def python(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_exports() -> None:
    assert len(set(osmosis_ai.rollout.__all__)) == 27
    assert all(hasattr(osmosis_ai.rollout, name) for name in osmosis_ai.rollout.__all__)


def test_the_core_loads_no_framework_and_no_server() -> None:
    modules = (
        "osmosis_ai, osmosis_ai.rollout, osmosis_ai.rollout.server, osmosis_ai.rollout.trajectory.save, "
        "osmosis_ai.rollout.utils.http, osmosis_ai.rollout.integrations.agents, osmosis_ai.rollout.discovery"
    )
    assert python(f"import sys, {modules}; print([m for m in {HEAVY!r} if m in sys.modules])") == "[]"


def test_integrations_never_load_litellm() -> None:
    code = (
        "import sys; import osmosis_ai.rollout.integrations.agents.strands as s, "
        "osmosis_ai.rollout.integrations.agents.openai_agents as o; "
        "print('litellm' in sys.modules, s.LiteLLMModel.__name__, o.OsmosisLitellmModel.__name__)"
    )
    assert python(code).startswith("False")


@pytest.mark.parametrize(
    ("statement", "missing", "extra"),
    [
        ("from osmosis_ai.rollout.server import create_rollout_server", "fastapi", "server"),
        ("import osmosis_ai.rollout.integrations.agents.strands", "strands", "strands"),
        ("import osmosis_ai.rollout.integrations.agents.openai_agents", "agents", "openai-agents"),
    ],
)
def test_missing_extra_says_how_to_install_it(statement: str, missing: str, extra: str) -> None:
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
try:
    {statement}
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    text = python(code)
    assert text.startswith(f"{missing} ")
    assert f'pip install "osmosis-ai[{extra}]"' in text


def test_facade_lists_and_refuses_names() -> None:
    import osmosis_ai.rollout.server as facade

    assert {"create_rollout_server", "ControllerAuth"} <= set(dir(facade))
    with pytest.raises(
        AttributeError, match=r"module 'osmosis_ai.rollout.server' has no attribute 'nothing'"
    ):
        _ = facade.nothing
