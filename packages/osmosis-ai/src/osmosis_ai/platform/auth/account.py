"""Who a token belongs to, as the platform tells it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.auth.store import Login
from osmosis_ai.platform.errors import AuthError, PlatformError

_ASSUMED_LIFETIME = timedelta(days=90)
_REVOKE_TIMEOUT_S = 5.0
_OF_A_REQUEST = frozenset({"VALIDATION", "NOT_FOUND", "CONFLICT", "RATE_LIMITED"})


@dataclass(frozen=True, slots=True)
class Account:
    """An answer of ``GET /verify``. ``workspace`` has ``id``, ``name``, ``role``, or is None when no repository resolved."""

    user_id: str
    email: str
    name: str | None
    expires_at: datetime
    token_id: str | None
    workspace: dict[str, Any] | None

    def login(self, platform_url: str, token: str) -> Login:
        """The account as a login to save."""
        return Login(
            platform_url=platform_url,
            token=token,
            expires_at=self.expires_at,
            user_id=self.user_id,
            email=self.email,
            name=self.name,
            token_id=self.token_id,
            created_at=datetime.now(UTC),
        )


def parse_account(answer: dict[str, Any], server_time: datetime | None = None) -> Account:
    """The account of a verify or device-token answer; ``server_time`` tells an expired token from a wrong clock.

    Raises:
        PlatformError: the user is incomplete, or the expiry is malformed or past.
    """
    user = answer.get("user")
    if not isinstance(user, dict) or not user.get("id") or not user.get("email"):
        raise PlatformError("The platform's answer names no complete user (id and email).")
    workspace = answer.get("workspace")
    return Account(
        user_id=str(user["id"]),
        email=str(user["email"]),
        name=user.get("name"),
        expires_at=_expiry(answer.get("expires_at"), server_time),
        token_id=answer.get("token_id"),
        workspace={key: workspace.get(key) for key in ("id", "name", "role")}
        if isinstance(workspace, dict)
        else None,
    )


def verify(client: PlatformClient) -> Account:
    """Ask the platform about the client's token.

    With a Git identity that the platform does not know, the question is repeated without it: the account is known even
    where the workspace is not.

    Raises:
        AuthError: the token is not accepted.
        PlatformError: anything else.
    """
    with login_errors():
        try:
            return parse_account(client.get("/verify"), client.server_time)
        except AuthError:
            raise
        except PlatformError as error:
            if client.git_identity is None or error.status_code is None or error.code == "UPGRADE_REQUIRED":
                raise
        client.git_identity = None
        return parse_account(client.get("/verify"), client.server_time)


@contextmanager
def login_errors() -> Iterator[None]:
    """What goes wrong at a login is the platform's, whatever its status says of the request: the user gave nothing but a token."""
    try:
        yield
    except PlatformError as error:
        if error.code in _OF_A_REQUEST:
            error.code = PlatformError.default_code
        raise


def revoke(client: PlatformClient, token_id: str) -> bool:
    """Revoke the client's own token; true when it no longer works afterwards.

    Raises:
        PlatformError: the platform could not be reached or refused.
    """
    try:
        client.request("DELETE", f"/tokens/{segment(token_id)}", timeout=_REVOKE_TIMEOUT_S)
    except AuthError:
        pass  # the platform does not accept it any more: revoked already
    return True


def _expiry(value: Any, server_time: datetime | None) -> datetime:
    if not value:
        return datetime.now(UTC) + _ASSUMED_LIFETIME
    try:
        expires_at = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise PlatformError(f"The platform sent an expiry that is no date: {value!r}.") from error
    if expires_at.tzinfo is None:
        raise PlatformError(f"The platform sent an expiry without a time zone: {value!r}.")
    now = datetime.now(UTC)
    if expires_at <= now and server_time is not None and server_time < expires_at:
        raise AuthError(
            f"The token is valid, but not by this machine's clock: here it is {now:%Y-%m-%d %H:%M} UTC, on the platform "
            f"{server_time.astimezone(UTC):%Y-%m-%d %H:%M} UTC. Set the clock and try again."
        )
    if expires_at <= now:
        raise AuthError("This token has expired. Create a new one in the platform.")
    return expires_at
