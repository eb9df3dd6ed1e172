"""Config files of runs: one parser for the command line and the platform."""

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.issues import Issue
from osmosis_ai.config.loader import RunConfig, check_config, load_config
from osmosis_ai.config.source import ConfigSource, parse_source
from osmosis_ai.config.submission import Submission, validate_submission

__all__ = [
    "ConfigError",
    "ConfigSource",
    "Issue",
    "RunConfig",
    "Submission",
    "check_config",
    "load_config",
    "parse_source",
    "validate_submission",
]
