"""Config files of runs: one parser for the command line and the platform."""

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.issues import Issue
from osmosis_ai.config.loader import RunConfig, load_config
from osmosis_ai.config.submission import Submission, validate_submission

__all__ = ["ConfigError", "Issue", "RunConfig", "Submission", "load_config", "validate_submission"]
