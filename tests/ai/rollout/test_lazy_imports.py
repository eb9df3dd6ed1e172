"""What importing the SDK loads. Each case is a fresh interpreter."""

import subprocess
import sys

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
