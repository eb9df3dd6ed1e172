"""Scoring texts against a rubric with a language model as the judge.

``evaluate_rubric`` needs the ``rubric`` extra, on first use; LiteLLM itself is imported at the first call of a judge.
"""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

if TYPE_CHECKING:
    from osmosis_ai.eval.rubric.engine import evaluate_rubric
    from osmosis_ai.eval.rubric.errors import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError
    from osmosis_ai.eval.rubric.result import JudgeUsage, RubricResult

__all__ = [
    "JudgeUsage",
    "MissingAPIKeyError",
    "ModelNotFoundError",
    "ProviderRequestError",
    "RubricResult",
    "evaluate_rubric",
]

__getattr__, __dir__ = lazy_facade(
    __name__,
    {
        "JudgeUsage": "osmosis_ai.eval.rubric.result",
        "MissingAPIKeyError": "osmosis_ai.eval.rubric.errors",
        "ModelNotFoundError": "osmosis_ai.eval.rubric.errors",
        "ProviderRequestError": "osmosis_ai.eval.rubric.errors",
        "RubricResult": "osmosis_ai.eval.rubric.result",
        "evaluate_rubric": "osmosis_ai.eval.rubric.engine",
    },
    needs="rubric",
)
