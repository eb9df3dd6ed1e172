"""Errors of the command line and their place in the exception tree."""

from collections.abc import Mapping
from typing import Any, ClassVar

from osmosis_ai.errors import OsmosisError

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2

# What scripts may rely on. Errors of other rooms with codes of their own are shown as VALIDATION, with theirs in `details.reason`.
ERROR_CODES = frozenset(
    [
        "VALIDATION",
        "AUTH_REQUIRED",
        "INTERACTIVE_REQUIRED",
        "WORKSPACE_REQUIRED",
        "NOT_FOUND",
        "CONFLICT",
        "RATE_LIMITED",
        "UPGRADE_REQUIRED",
        "PLATFORM_ERROR",
        "NETWORK",
        "RESERVED_HEADER_FORBIDDEN",
        "INVALID_USAGE",
        "INTERNAL",
        "INTERRUPTED",
        "CREDENTIALS_UNAVAILABLE",
        "KEYRING_UNAVAILABLE",
        "TOKEN_NOT_FOUND",
        "CREDENTIALS_PARSE_FAILED",
        "CREDENTIALS_VERSION_CHANGED",
    ]
)


class CLIError(OsmosisError):
    """A command cannot do what it was asked; ``exit_code`` is 1, or 2 for a mistake in the command line itself."""

    default_code: ClassVar[str] = "VALIDATION"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        exit_code: int = EXIT_ERROR,
    ) -> None:
        super().__init__(message, code=code, details=details)
        self.exit_code = exit_code
