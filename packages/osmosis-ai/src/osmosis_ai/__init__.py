"""SDK and command line of Osmosis. The rollout SDK is :mod:`osmosis_ai.rollout`."""

from osmosis_ai.consts import PACKAGE_VERSION

__version__ = PACKAGE_VERSION

__all__ = ["__version__"]
