"""Configuration objects that a rollout entrypoint defines."""

from pydantic import BaseModel, ConfigDict, Field


class ConcurrencyConfig(BaseModel):
    """How many workflows run at once; ``max_concurrent`` None means no limit."""

    max_concurrent: int | None = Field(default=None, ge=1)


class BaseConfig(BaseModel):
    """A named configuration. Further fields are allowed and readable as attributes; assignments are validated."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    name: str
    description: str | None = None


class AgentWorkflowConfig(BaseConfig):
    """Configuration of a workflow; subclass it and give ``name`` a default."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)


class GraderConfig(BaseConfig):
    """Configuration of a grader. Gradings follow the workflow's concurrency, so no backend enforces ``concurrency`` here."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
