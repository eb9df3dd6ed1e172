"""Logging in."""

import sys
from dataclasses import replace
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import notice, status, warn
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.api.client import PlatformClient
from osmosis_ai.platform.auth import keyring_store
from osmosis_ai.platform.auth.account import Account, login_errors, revoke, verify
from osmosis_ai.platform.auth.current import Token, environment_token
from osmosis_ai.platform.auth.device import DeviceCode, authorize, wait_for_token
from osmosis_ai.platform.auth.store import Login, save_login, set_aside_damaged_file
from osmosis_ai.platform.errors import AuthError, CredentialsError, PlatformError
from osmosis_ai.platform.urls import platform_url

_NEXT_STEPS = [
    {
        "action": "platform.clone_repository",
        "description": "Create or open a workspace in the Platform and clone its repository.",
    },
    {"action": "doctor", "description": "Run 'osmosis doctor' inside the clone to check it."},
]


def log_in(token: str | None, *, force: bool) -> OperationResult:
    """Verify a token, or get one through the browser, and save it. ``OSMOSIS_TOKEN`` is verified, never saved.

    Raises:
        AuthError, PlatformError: the login failed; a saved login is still there then.
        CLIError: no token and nobody to open a browser (``INTERACTIVE_REQUIRED``).
    """
    url = platform_url()
    from_environment = environment_token()
    if token is None and from_environment is not None:
        return _verify_environment(url, from_environment)
    if token is not None:
        if not token.strip():
            raise CLIError("--token must not be empty.")
        with (
            PlatformClient(url, Token(token.strip(), "credentials"), on_signal=warn) as client,
            status("Verifying token..."),
        ):
            account = _verify_given(client, url)
        return _save(url, token.strip(), account, "token", force=force)
    if mode() is not Mode.RICH:
        raise CLIError(
            "Login with the browser needs a person. Use --token TOKEN or set OSMOSIS_TOKEN.",
            code="INTERACTIVE_REQUIRED",
            details={"flags": ["--token"]},
        )
    return _browser_login(url, force=force)


def _verify_given(client: PlatformClient, url: str) -> Account:
    try:
        return verify(client)
    except AuthError as error:
        if error.status_code is None:
            raise  # the platform accepted it
        error.message = f"{url} does not accept this token. Check that it was copied whole and is meant for this platform."
        raise


def _verify_environment(url: str, value: str) -> OperationResult:
    with (
        PlatformClient(url, Token(value, "environment"), on_signal=warn) as client,
        status("Verifying OSMOSIS_TOKEN..."),
    ):
        account = verify(client)
    return OperationResult(
        "auth.login",
        resource=_resource(account, url, "environment", saved=False),
        message=f"Verified OSMOSIS_TOKEN for {account.email}.",
        next_steps=[{"action": "unset_env", "name": "OSMOSIS_TOKEN"}],
        next_text=[
            "OSMOSIS_TOKEN is used as long as it is set; nothing was saved. Unset it to use a saved login instead."
        ],
    )


def _browser_login(url: str, *, force: bool) -> OperationResult:
    with PlatformClient(url, on_signal=warn) as client, login_errors():
        code = authorize(client)
        notice(f"Open {code.url}")
        notice(f"and confirm the code {code.user_code} (valid for {code.expires_in // 60} minutes).")
        _hand_over(code)
        with status("Waiting for confirmation..."):
            answer = wait_for_token(client, code)
        token = answer.get("token")
        if not isinstance(token, str) or not token:
            raise PlatformError("The platform confirmed the login but sent no token.")
        client.token = Token(token, "credentials")
        account = verify(client)
    return _save(url, token, account, "device", force=force)


def _hand_over(code: DeviceCode) -> None:
    """At a terminal: the code goes to the clipboard, the address to the browser."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    import webbrowser

    from osmosis_ai.cli.output.clipboard import copy_text

    if copy_text(code.user_code):
        notice("The code is in the clipboard.")
    webbrowser.open(code.url)


def _save(url: str, token: str, account: Account, source: str, *, force: bool) -> OperationResult:
    damaged = set_aside_damaged_file()
    if damaged is not None:
        warn(
            "CREDENTIALS_PARSE_FAILED",
            f"The file of saved logins could not be used; it is kept as {damaged}.",
        )
    try:
        old, in_keyring = _save_login(account.login(url, token))
    except CredentialsError:
        if source == "device" and account.token_id is not None:  # nobody could use this token any more
            _revoke_token(url, token, account.token_id)
        raise
    cleared = old is not None and (force or old.user_id != account.user_id)
    if old is not None:
        _revoke_old(url, old, token, account)
    resource = _resource(account, url, source, saved=True)
    resource["token_store"] = "keyring" if in_keyring else "file"
    if cleared:
        resource["local_data_cleared"] = True
    return OperationResult(
        "auth.login",
        resource=resource,
        message=f"Login Successful: {account.email} on {url}.",
        next_steps=_NEXT_STEPS,
        next_text=[step["description"] for step in _NEXT_STEPS],
    )


def _save_login(login: Login) -> tuple[Login | None, bool]:
    """Save, with the token in the keyring where that is wanted and possible; the login before, and whether it is there."""
    choice = keyring_store.chosen_store()
    if choice == "keyring" or (choice == "auto" and keyring_store.is_installed()):
        name = keyring_store.account(login.platform_url)
        try:
            return save_login(replace(login, keyring_account=name)), True
        except CredentialsError as error:
            if choice == "keyring" or error.code != keyring_store.UNAVAILABLE:
                raise
            warn(keyring_store.UNAVAILABLE, f"The token is kept in a file. {error.message}")
    return save_login(login), False


def _revoke_old(url: str, old: Login, new_token: str, account: Account) -> None:
    """Revoke the login that was replaced, unless it is the same token or no longer valid."""
    if old.token == new_token or old.expired or old.token_id is None or old.token_id == account.token_id:
        return
    _revoke_token(url, old.token, old.token_id)


def _revoke_token(url: str, token: str, token_id: str) -> None:
    try:
        with PlatformClient(url, Token(token, "credentials")) as client:
            revoke(client, token_id)
    except OsmosisError as error:
        if not isinstance(error, PlatformError) or error.status_code is not None:
            warn("TOKEN_REVOKE_FAILED", f"A login that is used no more could not be revoked: {error.message}")


def _resource(account: Account, url: str, source: str, *, saved: bool) -> dict[str, Any]:
    return {
        "email": account.email,
        "name": account.name,
        "expires_at": account.expires_at.isoformat(),
        "platform_url": url,
        "workspace": None,
        "source": source,
        "verified": True,
        "saved": saved,
    }
