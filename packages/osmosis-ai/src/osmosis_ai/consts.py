"""Facts about the package."""

PACKAGE_NAME = "osmosis-ai"

# The same as in pyproject.toml (a test compares them). Asking the installed metadata would be most of the start-up time of the
# command line.
PACKAGE_VERSION = "0.3.0"
