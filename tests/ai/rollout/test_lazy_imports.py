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


def test_importing_the_package_alone_loads_nothing_and_every_name_builds_no_validator() -> None:
    code = (
        "import sys, osmosis_ai.rollout as r; print([m for m in ('asyncio', 'pydantic') if m in sys.modules]); "
        "names = {name: getattr(r, name) for name in r.__all__}; assert set(dir(r)) >= set(names); "
        "print([n for n, v in names.items() if getattr(v, '__pydantic_complete__', False)])"
    )
    assert python(code) == "[]\n[]"


def test_what_users_derive_is_checked_where_it_is_defined() -> None:
    class OwnConfig(osmosis_ai.rollout.AgentWorkflowConfig):
        name: str = "own"
        steps: int = 3

    assert OwnConfig.__pydantic_complete__
    assert OwnConfig().steps == 3


def test_integrations_never_load_litellm() -> None:
    code = (
        "import sys; import osmosis_ai.rollout.integrations.agents.strands as s, "
        "osmosis_ai.rollout.integrations.agents.openai_agents as o; "
        "print('litellm' in sys.modules, s.LiteLLMModel.__name__, o.OsmosisLitellmModel.__name__)"
    )
    assert python(code).startswith("False")
