"""Why an environment cannot be made."""

from osmosis_ai.errors import OsmosisError


class EnvironmentFailedError(OsmosisError):
    """The environment of a rollout cannot be made; the message says what to change."""

    default_code = "ENVIRONMENT_FAILED"
