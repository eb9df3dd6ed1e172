"""The rollout SDK: a workflow produces one sample, a grader rewards it, a backend runs both.

Each name is loaded on first use, and none of them loads an agent framework or a web server; those are in
:mod:`osmosis_ai.rollout.integrations` and :mod:`osmosis_ai.rollout.server`.
"""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

if TYPE_CHECKING:
    from osmosis_ai.rollout.agent_workflow import AgentWorkflow
    from osmosis_ai.rollout.backend import ExecutionBackend, LocalBackend
    from osmosis_ai.rollout.context import (
        AgentWorkflowContext,
        GraderContext,
        RolloutContext,
        SampleSource,
        get_rollout_context,
    )
    from osmosis_ai.rollout.grader import Grader
    from osmosis_ai.rollout.types import (
        AgentWorkflowConfig,
        AgentWorkflowOutput,
        BaseConfig,
        ConcurrencyConfig,
        ExecutionRequest,
        ExecutionResult,
        GraderCompleteRequest,
        GraderConfig,
        GraderInitRequest,
        GraderInitResponse,
        GraderStatus,
        MessageDict,
        RolloutCompleteRequest,
        RolloutErrorCategory,
        RolloutInitRequest,
        RolloutInitResponse,
        RolloutSample,
        RolloutStatus,
    )

__all__ = [
    "AgentWorkflow",
    "AgentWorkflowConfig",
    "AgentWorkflowContext",
    "AgentWorkflowOutput",
    "BaseConfig",
    "ConcurrencyConfig",
    "ExecutionBackend",
    "ExecutionRequest",
    "ExecutionResult",
    "Grader",
    "GraderCompleteRequest",
    "GraderConfig",
    "GraderContext",
    "GraderInitRequest",
    "GraderInitResponse",
    "GraderStatus",
    "LocalBackend",
    "MessageDict",
    "RolloutCompleteRequest",
    "RolloutContext",
    "RolloutErrorCategory",
    "RolloutInitRequest",
    "RolloutInitResponse",
    "RolloutSample",
    "RolloutStatus",
    "SampleSource",
    "get_rollout_context",
]

_ELSEWHERE = {
    "AgentWorkflow": "agent_workflow",
    "AgentWorkflowContext": "context",
    "ExecutionBackend": "backend",
    "Grader": "grader",
    "GraderContext": "context",
    "LocalBackend": "backend",
    "RolloutContext": "context",
    "SampleSource": "context",
    "get_rollout_context": "context",
}

__getattr__, __dir__ = lazy_facade(
    __name__, {name: f"{__name__}.{_ELSEWHERE.get(name, 'types')}" for name in __all__}
)
