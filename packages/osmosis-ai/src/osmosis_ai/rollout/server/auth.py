"""Credentials of the controller's callback endpoints."""

from dataclasses import dataclass


@dataclass
class ControllerAuth:
    """The controller's API key; its ``repr`` never shows it."""

    api_key: str | None = None

    def as_bearer_headers(self) -> dict[str, str] | None:
        """``{"Authorization": "Bearer <key>"}``, or None without a key."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else None

    def __repr__(self) -> str:
        return f"ControllerAuth(api_key={'<redacted>' if self.api_key else None})"
