"""What a bad config file raises."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from osmosis_ai.config.issues import Issue, placed_line
from osmosis_ai.errors import OsmosisError


class ConfigError(OsmosisError):
    """A config file breaks a rule; the message names the file or key and the rule.

    ``problems`` are what the message tells, one by one. ``details["also"]`` lists the problems of later stages, where there are any.
    """

    default_code: ClassVar[str] = "VALIDATION"

    def __init__(
        self, message: str, *, details: Mapping[str, Any] | None = None, problems: Sequence[Issue] = ()
    ) -> None:
        super().__init__(message, details=details)
        self.problems = list(problems)
        self.also: list[Issue] = []

    def add(self, also: Sequence[Issue]) -> None:
        """Tell further problems of the same file, without a change of the message."""
        self.also += also
        self.details["also"] = [dict(found) for found in self.also]

    def further_lines(self) -> list[str]:
        """The problems of later stages, with a heading."""
        return ["Also wrong in this file:", *map(placed_line, self.also)] if self.also else []
