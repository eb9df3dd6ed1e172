"""What an entrypoint module defines, and what is wrong with it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from osmosis_ai.errors import RolloutDiscoveryError
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend import ExecutionBackend, LocalBackend
from osmosis_ai.rollout.discovery.loader import imported_entrypoint, resolve_entrypoint
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types.config import AgentWorkflowConfig, GraderConfig
from osmosis_ai.rollout.validator import resolved_agent_name, validate_backend


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps the rollout from being used: a stable ``code``, the sentence, and what it is about."""

    code: str
    message: str
    field: str | None = None


@dataclass(slots=True)
class DiscoveredRollout:
    """What an entrypoint offers; usable when ``problems`` is empty. ``warnings`` do not stop anything."""

    workflow_cls: type[AgentWorkflow[Any]] | None = None
    workflow_config: AgentWorkflowConfig | None = None
    grader_cls: type[Grader] | None = None
    grader_config: GraderConfig | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the rollout can be used."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON: names of the classes and configs, and the problems."""
        workflow = self.workflow_cls
        return {
            "ok": self.ok,
            "agent_name": resolved_agent_name(workflow, self.workflow_config) if workflow else None,
            "workflow": workflow.__name__ if workflow else None,
            "workflow_config": self.workflow_config.name if self.workflow_config else None,
            "grader": self.grader_cls.__name__ if self.grader_cls else None,
            "grader_config": self.grader_config.name if self.grader_config else None,
            "problems": [_as_dict(problem) for problem in self.problems],
            "warnings": [_as_dict(problem) for problem in self.warnings],
        }


def discover_rollout(rollout_dir: Path, entrypoint: str) -> DiscoveredRollout:
    """Import the entrypoint and look for exactly one concrete workflow, one concrete grader and at most one config of each.

    Imported classes count, abstract ones do not, an object under two names counts once. Where the module has another backend
    than :class:`LocalBackend`, that backend decides what runs, so a missing workflow or grader is only a warning.
    Never raises for a bad rollout; everything is in ``problems``.
    """
    try:
        path = resolve_entrypoint(rollout_dir, entrypoint)
        with imported_entrypoint(rollout_dir, path) as module:
            return inspect_module(module, entrypoint)
    except RolloutDiscoveryError as error:
        return DiscoveredRollout(problems=[Problem(error.code, error.message, "entrypoint")])


def inspect_module(module: ModuleType, entrypoint: str) -> DiscoveredRollout:
    """What the imported module defines; see :func:`discover_rollout`."""
    found = DiscoveredRollout()
    values = list({id(value): (name, value) for name, value in vars(module).items()}.values())

    def pick(what: str, code: str, matches: Callable[[Any], bool]) -> Any:
        candidates = [(name, value) for name, value in values if matches(value)]
        if len(candidates) > 1:
            names = ", ".join(sorted(name for name, _ in candidates))
            message = f"Multiple {what} in '{entrypoint}': {names}. Keep exactly one in the entrypoint."
            found.problems.append(Problem(code, message, what))
            return None
        return candidates[0][1] if candidates else None

    found.workflow_cls = pick("AgentWorkflow", "MULTIPLE_WORKFLOWS", _concrete(AgentWorkflow))
    found.workflow_config = pick(
        "AgentWorkflowConfig",
        "MULTIPLE_WORKFLOW_CONFIGS",
        lambda value: isinstance(value, AgentWorkflowConfig),
    )
    found.grader_cls = pick("Grader", "MULTIPLE_GRADERS", _concrete(Grader))
    found.grader_config = pick(
        "GraderConfig", "MULTIPLE_GRADER_CONFIGS", lambda value: isinstance(value, GraderConfig)
    )
    own_backend = any(_is_other_backend(value) for _, value in values)
    _check(found, entrypoint, missing_goes_to=found.warnings if own_backend else found.problems)
    return found


def _check(found: DiscoveredRollout, entrypoint: str, *, missing_goes_to: list[Problem]) -> None:
    codes = {problem.code for problem in found.problems}
    if found.workflow_cls is None and "MULTIPLE_WORKFLOWS" not in codes:
        missing_goes_to.append(
            Problem(
                "WORKFLOW_NOT_FOUND",
                f"no concrete AgentWorkflow in '{entrypoint}'; define or import exactly one subclass that implements run()",
                "AgentWorkflow",
            )
        )
    if found.grader_cls is None and "MULTIPLE_GRADERS" not in codes:
        missing_goes_to.append(
            Problem(
                "MISSING_GRADER",
                f"no concrete Grader in '{entrypoint}'; define or import exactly one subclass that implements grade()",
                "Grader",
            )
        )
    if found.workflow_cls is None:
        return
    result = validate_backend(
        found.workflow_cls, found.workflow_config, found.grader_cls, found.grader_config
    )
    found.problems += [
        Problem(error.code, error.message, error.field)
        for error in result.errors
        if error.code != "MISSING_GRADER"
    ]


def _concrete(base: type) -> Callable[[Any], bool]:
    return lambda value: (
        inspect.isclass(value)
        and issubclass(value, base)
        and value is not base
        and not inspect.isabstract(value)
    )


def _is_other_backend(value: Any) -> bool:
    cls = value if inspect.isclass(value) else type(value)
    return issubclass(cls, ExecutionBackend) and cls not in (ExecutionBackend, LocalBackend)


def _as_dict(problem: Problem) -> dict[str, Any]:
    return {"code": problem.code, "message": problem.message, "field": problem.field}
