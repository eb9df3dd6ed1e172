"""Showing who is logged in."""

from datetime import datetime
from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.git import worktree_root
from osmosis_ai.cli.identity import origin_identity
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status, warn
from osmosis_ai.cli.output.results import DetailResult
from osmosis_ai.platform.auth.current import required_token
from osmosis_ai.platform.urls import platform_url

_NEVER_FROM_YEAR = 2900


def who_am_i() -> DetailResult:
    """The account behind the token, and inside a workspace repository the workspace.

    Raises:
        AuthError: logged out, or the token is no longer accepted.
        PlatformError: the platform cannot be asked.
    """
    url = platform_url()
    token = required_token(url, warn)
    from osmosis_ai.platform.api.client import PlatformClient
    from osmosis_ai.platform.auth.account import verify

    with (
        PlatformClient(url, token, git_identity=_identity(url), on_signal=warn) as client,
        status("Checking account..."),
    ):
        account = verify(client)
    fields: dict[str, Any] = {
        "email": account.email,
        "name": account.name,
        "expires_at": account.expires_at.isoformat(),
        "platform_url": url,
        "source": token.source,
    }
    with_id = {**fields, "token_id": account.token_id} if account.token_id else fields
    workspace = account.workspace or {}
    rows = [("Email", account.email), ("Name", formats.text(account.name))]
    if account.workspace is not None:
        rows += [
            ("Workspace", formats.text(workspace.get("name"))),
            ("Role", formats.text(workspace.get("role"))),
        ]
    rows += [("Platform", url), ("Auth Source", token.source), ("Expires", _end(account.expires_at))]
    return DetailResult({"account": with_id, **fields, "workspace": account.workspace}, rows, title="Account")


def _end(expires_at: datetime) -> str:
    """The day; a token without an end comes with a date far ahead."""
    return "never" if expires_at.year >= _NEVER_FROM_YEAR else formats.day(expires_at.isoformat())


def _identity(url: str) -> str | None:
    """The repository of the current directory; None outside one: the account is shown anywhere."""
    try:
        return origin_identity(worktree_root(Path.cwd()), url).identity
    except CLIError:
        return None
