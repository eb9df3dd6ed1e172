"""`make test-frameworks` covers both integrations, and the pages name the versions it begins with."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tool() -> Iterator[ModuleType]:
    name = "test_frameworks_tool"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "test_frameworks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def test_each_environment_has_the_tests_of_its_frameworks(tool: ModuleType) -> None:
    files = {environment.name: [path.name for path in environment.files] for environment in tool.ENVIRONMENTS}
    strands = ["test_strands_contract.py", "test_strands_conversations.py"]
    agents = ["test_openai_agents_contract.py", "test_openai_agents_conversations.py"]
    assert files == {"strands-oldest": strands, "openai-agents-oldest": agents, "newest": strands + agents}


@pytest.mark.parametrize(
    ("extra", "package", "page", "sentence"),
    [
        ("strands", "strands-agents", "strands.md", "works with Strands {} and newer"),
        ("openai-agents", "openai-agents", "openai-agents.md", "works with version {} and newer"),
    ],
)
def test_pages_name_the_oldest_versions(
    tool: ModuleType, extra: str, package: str, page: str, sentence: str
) -> None:
    pins = dict(pin.split("==") for pin in tool.lower_bounds(extra))
    assert set(pins) == {package, "openai"}
    assert sentence.format(pins[package]) in (ROOT / "docs" / page).read_text()


def test_unknown_environment_is_refused(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["oldest"]) == 2
    assert "strands-oldest" in capsys.readouterr().err
