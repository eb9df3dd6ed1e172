"""SDK and command line of Osmosis.

The rollout SDK is :mod:`osmosis_ai.rollout`. The rubric judge is reachable from here and loaded on first use, because it needs
the ``rubric`` extra.
"""

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.lazy_facade import lazy_facade

__version__ = PACKAGE_VERSION

_RUBRIC = "osmosis_ai.eval.rubric"

__getattr__, __dir__ = lazy_facade(
    __name__,
    {
        "evaluate_rubric": _RUBRIC,
        "RubricResult": _RUBRIC,
        "MissingAPIKeyError": _RUBRIC,
        "ProviderRequestError": _RUBRIC,
        "ModelNotFoundError": _RUBRIC,
    },
)

# `evaluate_rubric` is left out so that `from osmosis_ai import *` works without the rubric extra.
__all__ = ["MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult", "__version__"]
