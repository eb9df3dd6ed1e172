"""What a workflow may return instead of letting an integration record the conversation."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from osmosis_ai.rollout.types.deferred import built_on_first_use

type _FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]


@built_on_first_use
class AgentWorkflowOutput(BaseModel, defer_build=True):
    """The result of ``run()``: chat ``messages``, finite ``metrics``, and ``info`` that no grader sees."""

    # Instances are validated again wherever they are nested or coerced, so that a metric mutated to NaN is found.
    model_config = ConfigDict(extra="forbid", revalidate_instances="always")

    messages: list[dict[str, Any]] | None = None
    metrics: dict[str, _FiniteFloat] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)


def coerce_output(value: Any) -> AgentWorkflowOutput | None:
    """The value that ``run()`` returned as an output; a list is taken as its messages, None stays None.

    Raises:
        TypeError: for any other type.
        pydantic.ValidationError: when the output does not hold what it promises.
    """
    if value is None:
        return None
    if isinstance(value, AgentWorkflowOutput):
        return AgentWorkflowOutput.model_validate(value)
    if isinstance(value, list):
        return AgentWorkflowOutput(messages=value)
    raise TypeError(
        f"run() must return None, AgentWorkflowOutput or a list of chat messages, not {type(value).__name__}; "
        "return None when an Osmosis agent or session records the conversation"
    )
