"""Turning answers that are no success into errors a user can act on."""

import re
from collections.abc import Mapping
from typing import Any

from osmosis_ai.platform.auth.current import Source
from osmosis_ai.platform.errors import AuthError, PlatformError

_STATUS_CODES = {
    400: "VALIDATION",
    401: "AUTH_REQUIRED",
    404: "NOT_FOUND",
    409: "CONFLICT",
    429: "RATE_LIMITED",
}
_SCOPE_GUIDANCE = {
    "GIT_SCOPE_REQUIRED": "This command needs a workspace directory. Run it inside a clone of your workspace repository.",
    "GIT_SCOPE_INVALID": "The platform does not understand the repository of `origin`. Check `git remote get-url origin`.",
    "GIT_REPOSITORY_NOT_CONNECTED": (
        "The repository of `origin` is not connected to a workspace. Clone the workspace repository, or connect this one in "
        "the platform under Git Integration."
    ),
    "GIT_REPOSITORY_ACCESS_DENIED": (
        "Your account has no access to the workspace of this repository. Log in with the right account "
        "(osmosis auth login) or ask an owner to invite you."
    ),
    "GIT_SCOPE_HEADER_ACCESS_DENIED": (
        "No workspace that your account can see is connected to the repository of `origin`. Check "
        "`git remote get-url origin` and `osmosis auth whoami`."
    ),
}
_SCOPE_ALIASES = {
    "GIT_SCOPE_HEADER_REQUIRED": "GIT_SCOPE_REQUIRED",
    "GIT_SCOPE_HEADER_INVALID": "GIT_SCOPE_INVALID",
}
_MISSING_SECRETS = re.compile(r"Secret\(s\) not found: ([^\n]+)")
UPGRADE_TEXT = (
    "Upgrade required: this version of the command line is no longer supported. Run 'osmosis upgrade'."
)


def platform_problem(status: int, body: Any, raw: str, source: Source | None) -> PlatformError:
    """The error for an answer with a status of 400 or more (or an unexpected 3xx)."""
    document: Mapping[str, Any] = body if isinstance(body, dict) else {}
    platform_code = document.get("code") if isinstance(document.get("code"), str) else None
    details: dict[str, Any] = {}
    if platform_code is not None:
        details["platform_code"] = platform_code
    details.update(document)
    details["status_code"] = status
    if status == 401:
        return AuthError(_auth_text(platform_code, source), details=details)
    if status == 426:
        text = document.get("message")
        return PlatformError(
            text if isinstance(text, str) and text else UPGRADE_TEXT, code="UPGRADE_REQUIRED", details=details
        )
    message = _message(status, document, raw)
    code = _STATUS_CODES.get(status, "PLATFORM_ERROR")
    guidance = _SCOPE_GUIDANCE.get(_SCOPE_ALIASES.get(platform_code or "", platform_code or ""))
    return PlatformError(guidance or message, code=code, details=details)


def missing_secret_names(error: PlatformError) -> list[str]:
    """Names in a "Secret(s) not found: A, B" answer to a submit; empty for other errors."""
    match = _MISSING_SECRETS.search(error.message) if error.code == "NOT_FOUND" else None
    return [name.strip() for name in match.group(1).split(",") if name.strip()] if match else []


def _message(status: int, document: Mapping[str, Any], raw: str) -> str:
    for key in ("error", "message"):
        text = document.get(key)
        if isinstance(text, str) and text.strip():
            return "\n".join([text, *_issue_lines(document.get("issues"))])
    return f"API error: HTTP {status}. Response: {raw[:200]}"


def _issue_lines(issues: Any) -> list[str]:
    lines: list[str] = []
    for found in issues if isinstance(issues, list) else []:
        if isinstance(found, str):
            lines.append(f"  - {found}")
        elif isinstance(found, dict) and (found.get("message") or found.get("key")):
            label = ": ".join(str(found[part]) for part in ("key", "message") if found.get(part))
            correction = found.get("key_correction")
            lines.append(f"  - {label}" + (f" (did you mean '{correction}'?)" if correction else ""))
    return lines


def _auth_text(platform_code: str | None, source: Source | None) -> str:
    if source == "environment":
        reason = {"TOKEN_EXPIRED": "has expired", "TOKEN_REVOKED": "was revoked"}.get(
            platform_code or "", "is not valid"
        )
        return (
            f"The token in the OSMOSIS_TOKEN environment variable {reason}. Set a new one, or unset OSMOSIS_TOKEN to use "
            "your saved login."
        )
    if platform_code == "TOKEN_REVOKED":
        return "Your session was revoked. Run 'osmosis auth login' again."
    return "Your session has expired or is not valid. Run 'osmosis auth login' again."
