"""The body of a benchmark submit, checked at the door."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Text = Annotated[str, Field(min_length=1, max_length=2000)]
SecretName = Annotated[str, Field(pattern="^[A-Z][A-Z0-9_]*$", max_length=255)]
EnvName = Annotated[str, Field(pattern="^[A-Z_][A-Z0-9_]*$", max_length=255)]
MAX_AGENTS = 8
MAX_SECRETS = 16


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ProviderModel(_Strict):
    """A provider's model, through LiteLLM."""

    type: Literal["provider"]
    model: Text
    api_key_secret: SecretName


class EndpointModel(_Strict):
    """A model behind any OpenAI-compatible address."""

    type: Literal["endpoint"]
    base_url: Text
    model: Text
    api_key_secret: SecretName
    extra_headers: dict[str, str] = {}


class HostedModel(_Strict):
    """A LoRA model deployed on this platform."""

    type: Literal["hosted"]
    base_model: Text
    lora_model_name: Text


class Agent(_Strict):
    """One contestant: a model, perhaps inside a harness."""

    model: Annotated[ProviderModel | EndpointModel | HostedModel, Field(discriminator="type")]
    harness: Text | None = None
    harness_api_key_secret: SecretName | None = None
    env: dict[EnvName, str] = {}


class Experiment(_Strict):
    """Which benchmark: its key, name or id."""

    benchmark: Text


class Tasks(_Strict):
    """Which of its tasks."""

    categories: list[Text] | None = None
    task_names: list[Text] | None = None
    task_set: Literal["parity"] | None = None


class Execution(_Strict):
    """How the tasks are executed."""

    attempts_per_task: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_concurrent_attempts: Annotated[int, Field(ge=1, le=4096)] | None = None
    timeout_multiplier: Annotated[FiniteFloat, Field(gt=0)] | None = None
    max_retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    pass_threshold: FiniteFloat | None = None
    judge_model: Text | None = None
    judge_api_key_secret: SecretName | None = None
    verifier_secrets: Annotated[list[SecretName], Field(max_length=MAX_SECRETS)] | None = None


class Secrets(_Strict):
    """Names that the run needs, and values given for it only."""

    required: Annotated[list[SecretName], Field(max_length=MAX_SECRETS)] = []
    provided: Annotated[dict[SecretName, str], Field(repr=False)] = {}


class SubmitBenchmark(_Strict):
    """Body of `POST /api/cli/benchmark-runs`."""

    experiment_config: Experiment
    agents: Annotated[list[Agent], Field(min_length=1, max_length=MAX_AGENTS)]
    tasks_config: Tasks | None = None
    execution_config: Execution | None = None
    env_config: dict[EnvName, str] | None = None
    secrets: Secrets | None = None
