"""Secrets: names and scopes are shown, values never."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.mode import interactive
from osmosis_ai.cli.output.results import Column, ListResult, OperationResult
from osmosis_ai.cli.prompts import Question, confirmed, hidden_input
from osmosis_ai.cli.workspace import Workspace, open_workspace
from osmosis_ai.config.names import secret_name_problem
from osmosis_ai.platform.errors import PlatformError

PATH = "/environment-secrets"
KEY = "environment_secrets"
_WIRE_SCOPES = {"personal": "user", "workspace": "workspace"}
_REDACTED = "[REDACTED]"
_VALUE_KEYS = {"value", "secret", "secret_value"}
_SECRETS = Listing(
    PATH,
    KEY,
    "Secrets",
    serializers.secret,
    [
        Column("Name", lambda item: formats.text(item["name"])),
        Column("Scope", lambda item: formats.title(item["scope"])),
        Column("Updated", lambda item: formats.date(item["updated_at"])),
        Column("Updated By", lambda item: formats.text(item["updater_name"])),
    ],
    when_empty="No secrets yet. Create one with: osmosis secret set <name>",
)


def list_secrets(scope: str, limit: int, everything: bool) -> ListResult:
    """Names and scopes of the secrets that the user can use."""
    if scope not in {"all", *_WIRE_SCOPES}:
        raise CLIError(f"Scope must be 'all', 'workspace', or 'personal'. Got {scope!r}.")
    return _SECRETS.list(limit, everything, {"scope": _WIRE_SCOPES.get(scope, "all")})


def set_secret(name: str, scope: str, variable: str | None) -> OperationResult:
    """Create or update a secret; the value comes from a variable or a hidden prompt and is sent byte for byte."""
    wire = _check(name, scope)
    if variable is None and not interactive():
        raise CLIError(
            "The value is asked for in a terminal only. Pass --env VARNAME to read it from a variable.",
            code="INTERACTIVE_REQUIRED",
            details={"flags": ["--env"]},
        )
    value = _from_variable(variable) if variable is not None else None
    workspace = open_workspace()
    if value is None:
        value = hidden_input(f"Value of {name}")
        if value is None:
            return OperationResult("secret.set", status="cancelled", message="Cancelled.")
        if not value:
            raise CLIError("The value must not be empty.")
    with workspace.client as client, status("Saving secret..."), without_values([value]):
        answer = client.post(PATH, {"name": name, "value": value, "scope": wire})
    url = answer.get("platform_url")
    return OperationResult(
        "secret.set",
        resource={**serializers.secret(answer), **workspace.context},
        message=f'Secret "{name}" saved in {scope} scope.',
        next_steps=[{"action": "view_secrets", "url": url}] if url else [],
        next_text=[
            f'Name it in a config: [secrets] required = ["{name}"]',
            *([f"View: {url}"] if url else []),
        ],
        extra={"platform_url": url},
    )


def delete_secret(name: str, scope: str, *, yes: bool) -> OperationResult:
    """Delete a secret of one scope."""
    wire = _check(name, scope)
    workspace = open_workspace()
    with workspace.client as client:
        _require_existing(workspace, name, scope)
        if not confirmed(Question("Delete this secret?", {"Name": name, "Scope": scope}), yes=yes):
            return OperationResult("secret.delete", status="cancelled", message="Cancelled.")
        with status("Deleting secret..."):
            client.request("DELETE", PATH, body={"name": name, "scope": wire})
    return OperationResult(
        "secret.delete",
        resource={"name": name, "scope": scope},
        message=f'Secret "{name}" deleted from {scope} scope.',
    )


def secret_scopes(workspace: Workspace) -> dict[str, set[str]]:
    """Scopes (``user``, ``workspace``) by secret name.

    Raises:
        PlatformError: the list cannot be fetched.
    """
    scopes: dict[str, set[str]] = {}
    for page in workspace.client.pages(PATH, KEY, {"scope": "all"}):
        for item in page.get(KEY, []):
            scopes.setdefault(str(item.get("name")), set()).add(str(item.get("scope")))
    return scopes


@contextmanager
def without_values(values: Iterable[str]) -> Iterator[None]:
    """Take secret values out of an error of the platform, wherever it may have echoed them."""
    failure: PlatformError | None = None
    try:
        yield
    except PlatformError as error:
        failure = error
        for value in sorted(filter(None, values), key=len, reverse=True):
            failure = redacted(failure, value)
        failure.__traceback__ = None
    # Raised outside the handler so that no traceback leads to the original, which may quote the value.
    if failure is not None:
        raise failure


def redacted(error: PlatformError, value: str) -> PlatformError:
    """The error without the secret value, wherever the platform may have echoed it."""
    message = error.message.replace(value, _REDACTED)
    return type(error)(message, code=error.code, details=_redact(error.details, value))


def _redact(thing: Any, value: str) -> Any:
    if isinstance(thing, str):
        return thing.replace(value, _REDACTED)
    if isinstance(thing, dict):
        return {
            _redact(key, value): _REDACTED if key in _VALUE_KEYS else _redact(inner, value)
            for key, inner in thing.items()
        }
    if isinstance(thing, list):
        return [_redact(inner, value) for inner in thing]
    return thing


def _check(name: str, scope: str) -> str:
    problem = secret_name_problem(name)
    if problem is not None:
        raise CLIError(problem, details={"field": "name"})
    if scope not in _WIRE_SCOPES:
        raise CLIError(f"Scope must be 'personal' or 'workspace'. Got {scope!r}.", details={"field": "scope"})
    return _WIRE_SCOPES[scope]


def _from_variable(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise CLIError(
            f"The environment variable {variable} is unset or empty.",
            details={"field": "env", "name": variable},
        )
    return value


def _require_existing(workspace: Workspace, name: str, scope: str) -> None:
    """Say at once when there is no such secret; a lookup that fails decides nothing."""
    try:
        scopes = secret_scopes(workspace).get(name, set())
    except PlatformError:
        return
    if _WIRE_SCOPES[scope] in scopes:
        return
    other = next((shown for shown, wire in _WIRE_SCOPES.items() if wire in scopes), None)
    hint = f" It exists in {other} scope: pass --scope {other}." if other else ""
    raise CLIError(
        f'Secret "{name}" not found.{hint}', code="NOT_FOUND", details={"name": name, "scope": scope}
    )
