"""What a bad config file raises."""

from typing import ClassVar

from osmosis_ai.errors import OsmosisError


class ConfigError(OsmosisError):
    """A config file breaks a rule; the message names the file or key and the rule."""

    default_code: ClassVar[str] = "VALIDATION"
