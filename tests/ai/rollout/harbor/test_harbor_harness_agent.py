"""The agent that Harbor runs for a workflow: what it installs, what it hands over, and what becomes of the result."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import NonZeroAgentExitCodeError
from harbor.environments.base import ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.trial.config import AgentConfig

from osmosis_ai.rollout.container.files import ContainerInput

PATH = "osmosis_ai.rollout.backend.harbor.harness_agent:OsmosisHarnessInstalledAgent"


class Recorder:
    """An environment that records; commands end with ``status``."""

    def __init__(self, *, mounted: bool = False, status: int = 0) -> None:
        self.capabilities = SimpleNamespace(mounted=mounted)
        self.status = status
        self.commands: list[tuple[str, Any]] = []
        self.uploads: dict[str, bytes] = {}

    async def exec(self, command: str, user: Any = None, **options: Any) -> ExecResult:
        self.commands.append((command, user))
        return ExecResult(stdout="out", stderr="err", return_code=self.status)

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        self.uploads[target_path] = Path(source_path).read_bytes()


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    """As Harbor makes it from the trial's configuration, with an input that has a label."""
    ContainerInput(rollout_id="r1", prompt=[], label="42", metadata={"a": 1}).write(tmp_path / "in.json")
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "logs").mkdir()
    kwargs = {
        "bundle_path": str(tmp_path / "a.whl"),
        "agent_script": "proj-agent",
        "input_path": str(tmp_path / "in.json"),
    }
    config = AgentConfig(import_path=PATH, model_name="openai/osmosis-rollout", kwargs=kwargs)
    return AgentFactory.create_agent_from_config(config, logs_dir=tmp_path / "logs")


async def test_the_bundle_is_installed_as_root(agent: Any) -> None:
    environment = Recorder()
    await agent.setup(environment)
    assert environment.uploads == {"/installed-agent/a.whl": b"wheel"}
    command, user = environment.commands[-1]
    assert "pip install /installed-agent/a.whl" in command
    assert user == "root"


@pytest.mark.parametrize("mounted", [False, True])
async def test_the_input_is_handed_over_without_the_label(agent: Any, mounted: bool) -> None:
    environment = Recorder(mounted=mounted)
    await agent.run("Multiply 6 by 7", environment, AgentContext())
    handed = agent.logs_dir / "container_input.json"
    assert ContainerInput.read(handed) == ContainerInput(
        rollout_id="r1", prompt=[{"role": "user", "content": "Multiply 6 by 7"}], metadata={"a": 1}
    )
    expected = {} if mounted else {"/logs/agent/container_input.json": handed.read_bytes()}
    assert environment.uploads == expected
    ((command, user),) = environment.commands
    assert "proj-agent" in command
    assert user is None


async def test_a_prompt_comes_before_the_tasks_instruction(agent: Any) -> None:
    prompt = [{"role": "user", "content": "from the row"}]
    ContainerInput(rollout_id="r1", prompt=prompt).write(agent.input_path)
    await agent.run("from the task", Recorder(mounted=True), AgentContext())
    assert ContainerInput.read(agent.logs_dir / "container_input.json").prompt == prompt


async def test_a_program_that_ends_badly_is_an_error(agent: Any) -> None:
    with pytest.raises(NonZeroAgentExitCodeError, match="exit 3"):
        await agent.run("x", Recorder(status=3), AgentContext())


@pytest.mark.parametrize("left", [None, "{", "[]"])
def test_the_result_becomes_the_trials_metadata(agent: Any, left: str | None) -> None:
    context = AgentContext()
    if left is not None:
        (agent.logs_dir / "container_result.json").write_text(left)
    agent.populate_context_post_run(context)
    assert context.metadata is None
    result = {"status": "success", "output": None, "sample": None, "err_message": None}
    (agent.logs_dir / "container_result.json").write_text(json.dumps(result))
    agent.populate_context_post_run(context)
    assert context.metadata == result
