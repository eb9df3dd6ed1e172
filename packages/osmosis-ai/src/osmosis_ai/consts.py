"""Facts about the installed package."""

from importlib.metadata import PackageNotFoundError, version

PACKAGE_NAME = "osmosis-ai"

try:
    PACKAGE_VERSION = version(PACKAGE_NAME)
except PackageNotFoundError:
    # A source tree on PYTHONPATH (a container, a zip) has no distribution metadata.
    PACKAGE_VERSION = "0.3.0"
