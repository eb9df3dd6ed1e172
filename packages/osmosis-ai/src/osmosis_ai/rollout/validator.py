"""Checks on a workflow and grader before anything is run with them."""

import inspect
from dataclasses import dataclass, field
from typing import Any

from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types.config import AgentWorkflowConfig, GraderConfig

MAX_AGENT_NAME_LENGTH = 256


@dataclass(frozen=True, slots=True)
class ValidationError:
    """One problem: a stable ``code``, what is wrong, and which argument or method it is about."""

    code: str
    message: str
    field: str | None = None


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """All problems at once; ``valid`` when there are no errors."""

    valid: bool
    errors: list[ValidationError]
    warnings: list[ValidationError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Role:
    base: type[Any]
    argument: str
    method: str
    invalid_class: str
    not_async: str
    init_failed: str


_WORKFLOW = _Role(
    AgentWorkflow,
    "workflow_cls",
    "run",
    "INVALID_WORKFLOW_CLASS",
    "WORKFLOW_RUN_NOT_ASYNC",
    "WORKFLOW_INIT_FAILED",
)
_GRADER = _Role(
    Grader, "grader_cls", "grade", "INVALID_GRADER_CLASS", "GRADER_GRADE_NOT_ASYNC", "GRADER_INIT_FAILED"
)


def validate_backend(
    workflow_cls: Any,
    workflow_config: AgentWorkflowConfig | None,
    grader_cls: Any = None,
    grader_config: GraderConfig | None = None,
) -> ValidationResult:
    """Check classes, async methods, constructors and the agent's name; every problem found is reported."""
    errors = _check_class(_WORKFLOW, workflow_cls, workflow_config)
    name = resolved_agent_name(workflow_cls, workflow_config)
    if not 1 <= len(name) <= MAX_AGENT_NAME_LENGTH:
        errors.append(
            ValidationError(
                "INVALID_AGENT_NAME",
                f"the agent's name must have 1 to {MAX_AGENT_NAME_LENGTH} characters, it has {len(name)}; "
                "set 'name' of the workflow config",
                "name",
            )
        )
    if grader_cls is None:
        errors.append(
            ValidationError(
                "MISSING_GRADER", "there is no Grader; define one concrete Grader subclass", "grader_cls"
            )
        )
    else:
        errors += _check_class(_GRADER, grader_cls, grader_config)
    return ValidationResult(valid=not errors, errors=errors)


def resolved_agent_name(workflow_cls: Any, workflow_config: AgentWorkflowConfig | None) -> str:
    """The config's name without surrounding spaces, else the name of the class."""
    name = (getattr(workflow_config, "name", None) or "").strip()
    return name or str(getattr(workflow_cls, "__name__", workflow_cls))


def _check_class(role: _Role, cls: Any, config: Any) -> list[ValidationError]:
    if not inspect.isclass(cls) or not issubclass(cls, role.base) or cls is role.base:
        message = f"{cls!r} is not a subclass of {role.base.__name__}"
        return [ValidationError(role.invalid_class, message, role.argument)]
    errors: list[ValidationError] = []
    construct: Any = cls
    method = getattr(cls, role.method)
    if not inspect.iscoroutinefunction(method):
        errors.append(
            ValidationError(
                role.not_async,
                f"{cls.__name__}.{role.method} must be declared with 'async def'",
                f"{role.argument}.{role.method}",
            )
        )
    try:
        construct(config)
    except Exception as error:
        message = f"{cls.__name__}(config) raised {type(error).__name__}: {error}"
        errors.append(ValidationError(role.init_failed, message, role.argument))
    return errors
