"""Configuration objects that a rollout entrypoint defines."""

from pydantic import BaseModel, ConfigDict, Field

from osmosis_ai.rollout.types.deferred import built_on_first_use


@built_on_first_use
class ConcurrencyConfig(BaseModel, defer_build=True):
    """How many workflows run at once; ``max_concurrent`` None means no limit."""

    max_concurrent: int | None = Field(default=None, ge=1)


@built_on_first_use
class BaseConfig(BaseModel, defer_build=True):
    """A named configuration. Further fields are allowed and readable as attributes; assignments are validated."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    name: str
    description: str | None = None


@built_on_first_use
class AgentWorkflowConfig(BaseConfig, defer_build=True):
    """Configuration of a workflow; subclass it and give ``name`` a default."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)


@built_on_first_use
class GraderConfig(BaseConfig, defer_build=True):
    """Configuration of a grader. Gradings follow the workflow's concurrency, so no backend enforces ``concurrency`` here."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
