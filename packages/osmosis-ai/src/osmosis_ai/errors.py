"""The one exception tree of the package.

Every error that a user may meet derives from :class:`OsmosisError`. The message says what happened, where, and what to do
next; ``code`` is stable and may be matched by programs; ``details`` holds JSON-serialisable facts (file, line, field, value).
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class OsmosisError(Exception):
    """Base of all errors of the package.

    ``code`` is an upper-case identifier. A class carries a default; an instance may be given a more precise one.
    """

    default_code: ClassVar[str] = "ERROR"

    def __init__(
        self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details: dict[str, Any] = dict(details or {})

    def further_lines(self) -> list[str]:
        """Lines for people to read below the message; programs find the same in ``details``."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON: ``{"code", "message", "details"}``."""
        return {"code": self.code, "message": self.message, "details": self.details}


class RolloutDiscoveryError(OsmosisError):
    """A rollout entrypoint cannot be used: it does not import, or its workflow or grader is missing or ambiguous."""

    default_code = "ROLLOUT_DISCOVERY_FAILED"
