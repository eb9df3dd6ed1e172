"""SDK and command line of Osmosis. The rollout SDK is :mod:`osmosis_ai.rollout`.

The names of :mod:`osmosis_ai.eval.rubric` are here too, loaded on first use. ``evaluate_rubric`` needs the ``rubric`` extra and is
left out of ``__all__``, so that ``from osmosis_ai import *`` works without it.

Nothing else is imported here: the command line must be able to answer Ctrl-C as soon as it starts.
"""

from osmosis_ai.consts import PACKAGE_VERSION

TYPE_CHECKING = False  # type checkers know the name; importing it from typing takes ten milliseconds
if TYPE_CHECKING:
    from osmosis_ai.eval.rubric.engine import evaluate_rubric as evaluate_rubric
    from osmosis_ai.eval.rubric.errors import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError
    from osmosis_ai.eval.rubric.result import RubricResult

__version__ = PACKAGE_VERSION

__all__ = ["MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult", "__version__"]

_RUBRIC = "osmosis_ai.eval.rubric"
_LAZY = {
    "MissingAPIKeyError": f"{_RUBRIC}.errors",
    "ModelNotFoundError": f"{_RUBRIC}.errors",
    "ProviderRequestError": f"{_RUBRIC}.errors",
    "RubricResult": f"{_RUBRIC}.result",
    "evaluate_rubric": f"{_RUBRIC}.engine",
}


def __getattr__(name: str) -> object:
    from osmosis_ai.lazy_facade import lazy_facade

    load, _ = lazy_facade(__name__, _LAZY, needs="rubric")
    value: object = load(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
