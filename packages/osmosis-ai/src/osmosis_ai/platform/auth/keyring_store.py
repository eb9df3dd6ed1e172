"""Tokens in the keyring of the operating system, through the package ``keyring`` where that is installed."""

import hashlib
import importlib.util
import os
from typing import Any, Literal, get_args

from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.errors import CredentialsError

SERVICE = "osmosis-cli"
STORE_VARIABLE = "OSMOSIS_TOKEN_STORE"
UNAVAILABLE = "KEYRING_UNAVAILABLE"
NOT_FOUND = "TOKEN_NOT_FOUND"

Choice = Literal["auto", "keyring", "file"]


def chosen_store() -> Choice:
    """``OSMOSIS_TOKEN_STORE``: ``auto`` (the default), ``keyring`` or ``file``.

    Raises:
        OsmosisError: another value (``VALIDATION``).
    """
    value = os.environ.get(STORE_VARIABLE, "").strip().lower() or "auto"
    for choice in get_args(Choice):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    raise OsmosisError(
        f"{STORE_VARIABLE} must be auto, keyring or file, got {value!r}.",
        code="VALIDATION",
        details={"field": STORE_VARIABLE},
    )


def is_installed() -> bool:
    """Whether the package is there; whether its keyring can be used shows only when it is."""
    return importlib.util.find_spec("keyring") is not None


def account(platform_url: str) -> str:
    """The name of a platform's token in the keyring."""
    return f"platform:{hashlib.sha256(platform_url.encode()).hexdigest()[:24]}"


def put(name: str, token: str) -> None:
    """Keep a token.

    Raises:
        CredentialsError: there is no keyring that can be used (``KEYRING_UNAVAILABLE``).
    """
    _call("set_password", name, token)
    if _call("get_password", name) != token:
        raise _unavailable("it does not keep what it is given")


def get(name: str) -> str:
    """A kept token.

    Raises:
        CredentialsError: the keyring cannot be used (``KEYRING_UNAVAILABLE``) or has no such token (``TOKEN_NOT_FOUND``).
    """
    token = _call("get_password", name)
    if not isinstance(token, str) or not token:
        raise CredentialsError(
            "The token of your saved login is no longer in the keyring. Run 'osmosis auth login' again.",
            code=NOT_FOUND,
        )
    return token


def has(name: str) -> bool:
    """Whether a token is kept under the name.

    Raises:
        CredentialsError: the keyring cannot be used (``KEYRING_UNAVAILABLE``).
    """
    return bool(_call("get_password", name))


def forget(name: str) -> bool:
    """Remove a token; whether that worked."""
    try:
        _call("delete_password", name)
    except CredentialsError:
        return False
    return True


def _call(function: str, *arguments: str) -> Any:
    try:
        import keyring
    except ImportError as error:
        raise _unavailable("the package keyring is not installed") from error
    try:
        return getattr(keyring, function)(SERVICE, *arguments)
    # Back ends raise what their systems raise: D-Bus, Windows and macOS errors have no common class.
    except Exception as error:
        raise _unavailable(f"{type(error).__name__}: {error}") from error


def _unavailable(reason: str) -> CredentialsError:
    return CredentialsError(
        f"The keyring of this machine cannot be used ({reason}). Unlock it, or keep the token in a file: "
        f"export {STORE_VARIABLE}=file, then 'osmosis auth login'. A token in OSMOSIS_TOKEN works too.",
        code=UNAVAILABLE,
    )
