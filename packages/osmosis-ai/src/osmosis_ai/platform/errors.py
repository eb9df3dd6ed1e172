"""What goes wrong between client and platform."""

from typing import Any, ClassVar

from osmosis_ai.errors import OsmosisError


class PlatformError(OsmosisError):
    """The platform refused a request or could not be reached.

    ``details`` has ``status_code`` and ``platform_code`` (the ``code`` of the answer) when they are known.
    """

    default_code: ClassVar[str] = "PLATFORM_ERROR"

    @property
    def status_code(self) -> int | None:
        """The HTTP status, or None when there was no answer."""
        status: Any = self.details.get("status_code")
        return status if isinstance(status, int) else None


class AuthError(PlatformError):
    """No login, or one that the platform no longer accepts."""

    default_code: ClassVar[str] = "AUTH_REQUIRED"


class TransferError(PlatformError):
    """A file could not be uploaded or downloaded."""


class DiskFullError(TransferError):
    """There is no room for what is being downloaded."""


class CredentialsError(OsmosisError):
    """The file of saved logins cannot be read or written."""

    default_code: ClassVar[str] = "CREDENTIALS_UNAVAILABLE"
