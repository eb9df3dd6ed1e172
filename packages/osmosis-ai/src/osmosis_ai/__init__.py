"""SDK and command line of Osmosis.

The rollout SDK is :mod:`osmosis_ai.rollout`. The rubric judge is reachable from here and loaded on first use, because it needs
the ``rubric`` extra.
"""

from osmosis_ai.consts import PACKAGE_VERSION

# What type checkers take for true; importing typing for it would be most of this module's start-up time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = PACKAGE_VERSION

_RUBRIC = "osmosis_ai.eval.rubric"
_EXPORTS = {
    "evaluate_rubric": _RUBRIC,
    "RubricResult": _RUBRIC,
    "MissingAPIKeyError": _RUBRIC,
    "ProviderRequestError": _RUBRIC,
    "ModelNotFoundError": _RUBRIC,
}


def __getattr__(name: str) -> "Any":
    # Imported here, not above: until `osmosis` has got past this module it cannot answer Ctrl-C properly.
    from osmosis_ai.lazy_facade import lazy_facade

    return lazy_facade(__name__, _EXPORTS)[0](name)


def __dir__() -> "list[str]":
    from osmosis_ai.lazy_facade import lazy_facade

    return lazy_facade(__name__, _EXPORTS)[1]()


# `evaluate_rubric` is left out so that `from osmosis_ai import *` works without the rubric extra.
__all__ = ["MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult", "__version__"]
