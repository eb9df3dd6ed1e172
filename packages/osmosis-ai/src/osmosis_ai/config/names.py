"""Rules for names in configs: rollouts, branches, commits, environment variables and secrets."""

import re
from collections.abc import Iterable

ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
COMMIT_SHA = re.compile(r"[0-9a-fA-F]{7,40}")
RESERVED_ENV_PREFIX = "_OSMOSIS_"
SECRET_NAME_MAX = 255
VARIABLE_MAX_BYTES = 64 * 1024


def env_name_problem(name: str) -> str | None:
    """Why an environment variable name of ``[env]`` is refused, or None."""
    if not ENV_NAME.fullmatch(name):
        return f"Invalid env var name {name!r}: use capital letters, digits and underscores (^[A-Z_][A-Z0-9_]*$)."
    if name.startswith(RESERVED_ENV_PREFIX):
        return f"Env var name {name!r} is reserved by the platform: names must not start with {RESERVED_ENV_PREFIX}."
    return None


def secret_name_problem(name: str) -> str | None:
    """Why a secret name is refused, or None."""
    if len(name) > SECRET_NAME_MAX or not SECRET_NAME.fullmatch(name):
        return (
            f"Invalid secret name {name!r}: use capital letters, digits and underscores, starting with a letter "
            f"(^[A-Z][A-Z0-9_]*$, at most {SECRET_NAME_MAX} characters)."
        )
    return None


def duplicates(names: Iterable[str]) -> list[str]:
    """Names that occur more than once, in order of their second occurrence, each once."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    return list(repeated)


def rollout_name_problem(name: str) -> str | None:
    """Why a rollout name is refused, or None. A name is one plain folder name."""
    if not name.strip() or name in {".", ".."} or "/" in name or "\\" in name or "\0" in name:
        return f"{name!r} is not a valid rollout name: it must be the name of one folder under rollouts/."
    return None


def branch_problem(branch: str) -> str | None:
    """Why a branch name is refused, or None."""
    if not branch or any(character.isspace() for character in branch):
        return "must not be empty or contain whitespace"
    return None


def commit_problem(sha: str) -> str | None:
    """Why a commit id is refused, or None."""
    if not COMMIT_SHA.fullmatch(sha):
        return "must be a hexadecimal Git commit SHA of 7 to 40 digits"
    return None


def variable_problem(value: str) -> str | None:
    """Why no environment variable can have this value, or None. The value itself is not in the text: it may be secret."""
    if "\0" in value:
        return "must not contain a NUL character"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be Unicode text; it holds half of a surrogate pair"
    if size > VARIABLE_MAX_BYTES:
        return f"must have at most {VARIABLE_MAX_BYTES} bytes, got {size}"
    return None
