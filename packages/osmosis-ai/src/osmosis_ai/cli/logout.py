"""Logging out."""

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import warn
from osmosis_ai.cli.output.mode import interactive
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.auth import keyring_store
from osmosis_ai.platform.auth.current import Token, environment_token
from osmosis_ai.platform.auth.store import DAMAGED, Login, delete_login, load_login, set_aside_damaged_file
from osmosis_ai.platform.errors import CredentialsError
from osmosis_ai.platform.urls import platform_url


def log_out(*, yes: bool) -> OperationResult:
    """Revoke the saved login of the current platform and remove it here. Logins of other platforms stay."""
    url = platform_url()
    damaged = set_aside_damaged_file()
    if damaged is not None:
        warn(
            "CREDENTIALS_PARSE_FAILED",
            f"The file of saved logins could not be used; it is kept as {damaged}.",
        )
    env_token_set = environment_token() is not None
    login, unreadable = _load(url)
    if login is None and unreadable is None:
        resource = {"logged_in": False, "env_token_set": env_token_set, "platform_url": url}
        hint = ["OSMOSIS_TOKEN is still set; unset it to stop using it."] if env_token_set else []
        return OperationResult(
            "auth.logout", status="noop", resource=resource, message="Not logged in.", next_text=hint
        )
    if not yes:
        if not interactive():
            raise CLIError("Use --yes to confirm in non-interactive mode.", code="INTERACTIVE_REQUIRED")
        summary = {"Platform": url} if login is None else {"Account": login.email, "Platform": url}
        if not confirmed(Question("Log out?", summary), yes=False):
            return OperationResult("auth.logout", status="cancelled", message="Cancelled.")
    revoked = login is not None and _revoke(url, login)
    if unreadable is not None:
        warn(
            "TOKEN_REVOKE_FAILED",
            f"The login is removed here but could not be revoked: {unreadable.message}",
        )
    _delete(url, revoked)
    if login is not None and login.keyring_account and not keyring_store.forget(login.keyring_account):
        warn("KEYRING_DELETE_FAILED", "The token is still in the keyring; remove it there.")
    return OperationResult(
        "auth.logout",
        resource={
            "logged_in": False,
            "revoked": revoked,
            "env_token_set": env_token_set,
            "platform_url": url,
        },
        message=f"Logged out of {url}.",
        next_text=["OSMOSIS_TOKEN is still set; unset it to stop using it."] if env_token_set else [],
    )


def _load(url: str) -> tuple[Login | None, CredentialsError | None]:
    """The saved login; or why its token cannot be had: that must not keep a user logged in."""
    try:
        return load_login(url), None
    except CredentialsError as error:
        if error.code not in {keyring_store.UNAVAILABLE, keyring_store.NOT_FOUND, *DAMAGED}:
            raise
        return None, error


def _delete(url: str, revoked: bool) -> None:
    try:
        delete_login(url)
    except CredentialsError as error:
        if revoked:
            error.message = (
                f"The login is revoked and works no more, but it could not be removed here. {error.message}"
            )
        raise


def _revoke(url: str, login: Login) -> bool:
    """Whether the token no longer works on the platform; failing to say so never keeps a user logged in here."""
    if login.token_id is None or login.expired:
        return login.expired
    from osmosis_ai.platform.api.client import PlatformClient
    from osmosis_ai.platform.auth.account import revoke

    try:
        with PlatformClient(url, Token(login.token, "credentials")) as client:
            return revoke(client, login.token_id)
    except OsmosisError as error:
        warn("TOKEN_REVOKE_FAILED", f"The login is removed here but could not be revoked: {error.message}")
        return False
