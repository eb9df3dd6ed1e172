"""What can go wrong with a sandbox itself."""

from osmosis_ai.errors import OsmosisError


class SandboxError(OsmosisError, RuntimeError):
    """A sandbox cannot be made, or a file cannot go in or out of it."""

    default_code = "SANDBOX_FAILED"
