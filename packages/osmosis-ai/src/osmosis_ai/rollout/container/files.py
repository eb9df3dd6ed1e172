"""The files through which the host and the processes in a container talk to each other."""

import json
import math
import os
import uuid
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field

from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.output import AgentWorkflowOutput
from osmosis_ai.rollout.types.protocol import RolloutId
from osmosis_ai.rollout.types.sample import MessageDict, RolloutSample

AGENT_LOGS_DIR = Path("/logs/agent")
VERIFIER_LOGS_DIR = Path("/logs/verifier")
INPUT_FILENAME = "container_input.json"
RESULT_FILENAME = "container_result.json"
REWARD_FILENAME = "reward.json"


class _ExchangeFile(BaseModel):
    @classmethod
    def read(cls, path: Path) -> Self:
        """The content of a file.

        Raises:
            OSError: when it cannot be read.
            pydantic.ValidationError: when it does not hold what it should.
        """
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Write the file; it appears whole or not at all. Its folder is made when it is missing.

        Raises:
            OSError: when it cannot be written.
            pydantic_core.PydanticSerializationError: when user code left something in it that JSON cannot carry.
        """
        _write(path, self.model_dump_json(indent=2))


class ContainerInput(_ExchangeFile):
    """What one rollout in a container is given.

    ``api_key`` is the key for ``chat_completions_url``: the file is a secret. An agent gets it without ``label``, so that the
    policy cannot read the answer.
    """

    version: int = 1
    rollout_id: RolloutId
    prompt: list[MessageDict] = Field(default_factory=list)
    label: str | None = None
    metadata: dict[str, Any] | None = None
    chat_completions_url: str = ""
    api_key: str | None = None


class ContainerResult(_ExchangeFile):
    """How a workflow in a container ended.

    ``sample`` is what an integration recorded; a returned output leaves it empty. ``output`` is what ``run()`` returned, else
    the messages and the finite numbers among the metrics of the sample.
    """

    status: RolloutStatus
    output: AgentWorkflowOutput | None = None
    sample: RolloutSample | None = None
    err_message: str | None = None

    def write(self, path: Path) -> None:
        """See :meth:`ContainerInput.write`. Telemetry that JSON cannot carry is dropped from the sample with a warning."""
        sample = None if self.sample is None else self.sample.json_safe_copy()
        _write(path, self.model_copy(update={"sample": sample}).model_dump_json(indent=2))


def write_reward(reward: float) -> None:
    """Leave the reward, a finite number, where the verifier looks for it.

    Raises:
        ValueError: when it is not finite.
    """
    if not math.isfinite(reward):
        raise ValueError(f"a reward must be a finite number, got {reward}")
    _write(VERIFIER_LOGS_DIR / REWARD_FILENAME, json.dumps({"reward": float(reward)}))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        partial.write_bytes(text.encode())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
