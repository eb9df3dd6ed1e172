"""What a worker is told at its start: one JSON line on standard input."""

from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from osmosis_ai.errors import OsmosisError


class WorkerSpecError(OsmosisError):
    """The spec on standard input cannot be used."""

    default_code = "WORKER_SPEC_INVALID"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HostedPolicySpec(_Strict):
    """A policy behind an OpenAI-compatible server of the deployment."""

    kind: Literal["hosted"]
    base_url: str
    api_key: str = Field(repr=False)
    model: str


class ProviderPolicySpec(_Strict):
    """A policy of another company, called through LiteLLM. ``env`` holds the credentials it reads."""

    kind: Literal["provider"]
    model: str
    env: dict[str, str] = Field(default_factory=dict, repr=False)


PolicySpec = Annotated[HostedPolicySpec | ProviderPolicySpec, Field(discriminator="kind")]


class EvaluationSection(BaseModel):
    """``[evaluation]``: ``limit`` None is a random tenth of the rows; timeouts are seconds."""

    limit: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    pass_threshold: float = Field(default=1.0, allow_inf_nan=False)
    agent_workflow_timeout_s: float = Field(default=450.0, gt=0, allow_inf_nan=False)
    grader_timeout_s: float = Field(default=150.0, gt=0, allow_inf_nan=False)


class PolicyOverrides(_Strict):
    """``[advanced.policy]``: what is set here wins over what the agent asks for."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0)


class EvalAdvanced(BaseModel):
    """``[advanced]`` of an evaluation. ``seed`` picks the sampled rows."""

    seed: int = 0
    policy: PolicyOverrides = Field(default_factory=PolicyOverrides)

    @field_validator("policy", mode="before")
    @classmethod
    def _absent_table(cls, value: Any) -> Any:
        # A table that was left out has no default to fill in; it arrives as null.
        return {} if value is None else value


class EvalConfig(BaseModel):
    """The submitted config of an evaluation, with every default filled in."""

    experiment: dict[str, Any] = Field(default_factory=dict)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    advanced: EvalAdvanced = Field(default_factory=EvalAdvanced)


class WorkerSpec(BaseModel):
    """What evaluation and training workers have in common.

    ``work_dir`` is private to the run and outlives restarts of the worker. The files of rollout R lie below
    ``artifact_root``/R. ``dataset_path`` is a Parquet file with ``dataset_rows`` rows.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str
    run_name: str
    api_url: str
    run_token: str = Field(repr=False)
    work_dir: Path
    rollout_url: str
    rollout_instance_id: str | None = None
    artifact_root: Path
    dataset_path: Path
    dataset_rows: int = Field(ge=0)


class EvalSpec(WorkerSpec):
    """Spec of an evaluation worker."""

    kind: Literal["eval"]
    config: EvalConfig
    policy: PolicySpec


class BaseModelSpec(_Strict):
    """The model to train: its name and the local folder with its weights."""

    name: str
    path: Path


class TrainSpec(WorkerSpec):
    """Spec of a training worker. The trainer reads the sections of ``config`` itself.

    ``secrets`` are values that the run's engine needs, by the name that ``config`` has for them.
    """

    kind: Literal["train"]
    config: dict[str, Any]
    base_model: BaseModelSpec
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)


_SPEC: TypeAdapter[EvalSpec | TrainSpec] = TypeAdapter(
    Annotated[EvalSpec | TrainSpec, Field(discriminator="kind")]
)


def read_spec(stdin: BinaryIO) -> EvalSpec | TrainSpec:
    """Read the spec: one JSON line. The stream stays open after it, as the worker's lifeline.

    Raises :class:`WorkerSpecError`, which names the wrong fields but never their values.
    """
    line = stdin.readline()
    if not line.strip():
        raise WorkerSpecError("no spec on standard input: a worker is started by the platform")
    try:
        return _SPEC.validate_json(line)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'spec'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False, include_context=False)
        )
    raise WorkerSpecError(f"the spec on standard input cannot be used: {wrong}")
