"""Where the secrets of a run will come from."""

from collections.abc import Sequence

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.secrets import secret_scopes
from osmosis_ai.cli.workspace import Workspace
from osmosis_ai.platform.api.problems import missing_secret_names
from osmosis_ai.platform.errors import AuthError, PlatformError

SCOPE_NOTE = "Secrets default to personal scope; use --scope workspace to share one with the workspace."


def describe_secrets(workspace: Workspace, names: Sequence[str]) -> dict[str, str]:
    """The scope of each required secret in words; a dash for all when the platform cannot be asked.

    Raises:
        CLIError: a secret exists in no scope.
        AuthError: the login is not accepted.
    """
    if not names:
        return {}
    try:
        scopes = secret_scopes(workspace)
    except AuthError:
        raise
    except PlatformError:
        return dict.fromkeys(names, formats.MISSING)
    missing = [name for name in names if not scopes.get(name)]
    if missing:
        raise missing_secrets(missing)
    return {name: _words(scopes[name]) for name in names}


def missing_secrets(names: Sequence[str], platform_url: str | None = None) -> CLIError:
    """What to do about secrets that do not exist."""
    lines = [f"Could not find secret(s): {', '.join(names)}"]
    lines += [f"  osmosis secret set {name}" for name in names]
    lines.append(SCOPE_NOTE)
    if platform_url:
        lines.append(f"Or in the platform: {platform_url}")
    return CLIError("\n".join(lines), details={"missing": list(names)})


def explained(error: PlatformError) -> PlatformError | CLIError:
    """The error of a submit; secrets that the platform misses are named with the commands that create them."""
    names = missing_secret_names(error)
    if not names:
        return error
    told = missing_secrets(names, error.details.get("platform_url"))
    return CLIError(told.message, code=error.code, details={**error.details, **told.details})


def _words(scopes: set[str]) -> str:
    if "user" in scopes:
        return "Personal (overrides workspace)" if "workspace" in scopes else "Personal"
    return "Workspace"
