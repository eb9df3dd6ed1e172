"""Multiply two numbers with a tool, each rollout in a sandbox of its own, using Strands Agents and Harbor."""

import os
from pathlib import Path

import uvicorn
from harbor.models.trial.config import EnvironmentConfig
from harbor.trial.queue import TrialQueue
from multiply_agent.agent import MultiplyWorkflow, workflow_config
from multiply_agent.grader import MultiplyGrader

from osmosis_ai.rollout.backend.harbor import HarborBackend
from osmosis_ai.rollout.server import create_rollout_server

# What the platform finds in this module.
__all__ = ["MultiplyGrader", "MultiplyWorkflow", "main", "workflow_config"]

FOLDER = Path(__file__).parent
# On a machine with Docker, EnvironmentConfig() builds the task's Dockerfile and runs rollouts in containers instead.
SANDBOX = EnvironmentConfig(import_path="osmosis_ai.rollout.sandbox:BubblewrapEnvironment")


def main() -> None:
    """Serve the rollout on the port that the platform chose."""
    backend = HarborBackend(
        orchestrator=TrialQueue(n_concurrent=4),
        tasks_dir=FOLDER / "tasks" / "multiply",
        agent=MultiplyWorkflow,
        workflow_config="multiply_agent.agent:workflow_config",
        grader=MultiplyGrader,
        code_dir=FOLDER,
        environment_config=SANDBOX,
        max_queue_depth=8,
    )
    app = create_rollout_server(backend=backend, lifespan=backend.prewarm_lifespan())
    host = os.environ.get("_OSMOSIS_ROLLOUT_HOST", "0.0.0.0")
    uvicorn.run(app, host=host, port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")))


if __name__ == "__main__":
    main()
