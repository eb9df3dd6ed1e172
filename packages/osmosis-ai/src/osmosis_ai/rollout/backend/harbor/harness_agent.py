"""The agent that Harbor sees when a rollout runs a workflow: it installs the bundle and starts its program."""

import json
import logging
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout.backend.harbor.image import venv_or_fallback_install, venv_or_fallback_script
from osmosis_ai.rollout.container.files import AGENT_LOGS_DIR, INPUT_FILENAME, RESULT_FILENAME, ContainerInput

INSTALL_DIR = PurePosixPath("/installed-agent")


class OsmosisHarnessInstalledAgent(BaseInstalledAgent):  # type: ignore[misc]
    """Runs the ``agent_script`` of the bundle at ``bundle_path`` on the input at ``input_path`` (both on the host)."""

    SUPPORTS_ATIF = True
    logger = logging.getLogger(__name__)

    def __init__(
        self, logs_dir: Path, *args: Any, bundle_path: str, agent_script: str, input_path: str, **kwargs: Any
    ) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self.bundle_path = Path(bundle_path)
        self.agent_script = agent_script
        self.input_path = Path(input_path)

    @staticmethod
    def name() -> str:
        return "osmosis-harness"

    def version(self) -> str:
        return PACKAGE_VERSION

    async def install(self, environment: BaseEnvironment) -> None:
        wheel = str(INSTALL_DIR / self.bundle_path.name)
        await environment.upload_file(source_path=self.bundle_path, target_path=wheel)
        await self.exec_as_root(environment, venv_or_fallback_install(wheel))

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Hand the input over without the label, which the policy must not see, and run the program to its end.

        Without a prompt the task's instruction is the prompt. What the workflow raised is in the result that the program left.

        Raises:
            harbor.agents.installed.base.NonZeroAgentExitCodeError: when the program could not be run.
        """
        given = ContainerInput.read(Path(self.input_path))
        prompt = given.prompt or [{"role": "user", "content": instruction}]
        handed = given.model_copy(update={"label": None, "prompt": prompt})
        local = Path(self.logs_dir) / INPUT_FILENAME
        handed.write(local)
        if not environment.capabilities.mounted:
            await environment.upload_file(
                source_path=local, target_path=(AGENT_LOGS_DIR / INPUT_FILENAME).as_posix()
            )
        await self.exec_as_agent(environment, venv_or_fallback_script(self.agent_script))

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Make the result that the program left the metadata of the trial."""
        path = Path(self.logs_dir) / RESULT_FILENAME
        try:
            result = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            self.logger.warning("The agent left no readable result: %s", error)
            return
        if isinstance(result, dict):
            context.metadata = result
