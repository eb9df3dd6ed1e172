"""Names of local evaluations."""

import re
import secrets

from osmosis_ai.run_names import propose_name

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")


def new_name() -> str:
    """``adjective-animal-NN``."""
    return f"{propose_name()}-{secrets.randbelow(90) + 10}"


def name_problem(name: str) -> str | None:
    """Why a name cannot be used, or None."""
    if _NAME.fullmatch(name):
        return None
    return "use 1 to 96 of the characters A-Z a-z 0-9 . _ -, not beginning with a dot or a dash"
