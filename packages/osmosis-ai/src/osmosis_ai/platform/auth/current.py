"""Which token a command uses."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.auth.store import DAMAGED, Login, load_login
from osmosis_ai.platform.errors import AuthError, CredentialsError

TOKEN_VARIABLE = "OSMOSIS_TOKEN"
NOT_LOGGED_IN = "Not logged in. Run 'osmosis auth login' first."

Source = Literal["environment", "credentials"]
_SENDABLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and where it comes from; ``login`` is the saved login, if that is the source.

    Raises:
        OsmosisError: no header can carry the value (``VALIDATION``).
    """

    value: str
    source: Source
    login: Login | None = None

    def __post_init__(self) -> None:
        if not _SENDABLE.fullmatch(self.value):
            what = f"The token in {TOKEN_VARIABLE}" if self.source == "environment" else "This token"
            raise OsmosisError(
                f"{what} holds spaces, line breaks or other characters that no token has. Copy it again, as one line.",
                code="VALIDATION",
            )

    def __repr__(self) -> str:
        return f"Token(source={self.source!r})"


def environment_token() -> str | None:
    """``OSMOSIS_TOKEN``; blank means unset."""
    return os.environ.get(TOKEN_VARIABLE, "").strip() or None


def current_token(platform_url: str, on_damaged: Callable[[str, str], None]) -> Token | None:
    """The token for a platform: the environment first, then the saved login; None when logged out.

    A damaged login counts as none; `on_damaged` gets a code and a sentence about it.

    Raises:
        AuthError: the saved login has expired.
        CredentialsError: the file of saved logins cannot be read, or the keyring cannot be used.
    """
    value = environment_token()
    if value is not None:
        return Token(value, "environment")
    try:
        login = load_login(platform_url)
    except CredentialsError as error:
        if error.code not in DAMAGED:
            raise
        on_damaged(error.code, error.message)
        return None
    if login is None:
        return None
    if login.expired:
        raise AuthError(
            f"Your login has expired: it ended on {login.expires_at:%Y-%m-%d %H:%M} UTC, and this machine's clock says "
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Run 'osmosis auth login' again."
        )
    return Token(login.token, "credentials", login)


def required_token(platform_url: str, on_damaged: Callable[[str, str], None]) -> Token:
    """Like :func:`current_token`, but being logged out is an error.

    Raises:
        AuthError: no login (`details["platform_url"]` is where), or an expired one.
    """
    token = current_token(platform_url, on_damaged)
    if token is None:
        raise AuthError(NOT_LOGGED_IN, details={"platform_url": platform_url})
    return token
