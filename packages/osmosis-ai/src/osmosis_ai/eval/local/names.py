"""Names of local evaluations."""

import re
import secrets

_ADJECTIVES = (
    *(
        "amber",
        "brave",
        "brisk",
        "calm",
        "clever",
        "cosy",
        "crisp",
        "eager",
        "fair",
        "gentle",
        "happy",
        "jolly",
    ),
    *(
        "keen",
        "lively",
        "lucid",
        "mellow",
        "merry",
        "neat",
        "nimble",
        "plain",
        "polite",
        "proud",
        "quick",
        "quiet",
    ),
    *("rapid", "ready", "sharp", "steady", "sunny", "swift", "tidy", "warm", "wise", "witty"),
)
_ANIMALS = (
    *(
        "badger",
        "beaver",
        "bison",
        "crane",
        "dove",
        "eagle",
        "egret",
        "falcon",
        "finch",
        "fox",
        "gecko",
        "hare",
    ),
    *("heron", "ibis", "jackal", "koala", "lark", "lemur", "lynx", "marten", "mole", "newt", "otter", "owl"),
    *("panda", "puffin", "raven", "robin", "seal", "stork", "tapir", "tern", "vole", "wren"),
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")


def new_name() -> str:
    """``adjective-animal-NN``."""
    return f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_ANIMALS)}-{secrets.randbelow(90) + 10}"


def name_problem(name: str) -> str | None:
    """Why a name cannot be used, or None."""
    if _NAME.fullmatch(name):
        return None
    return "use 1 to 96 of the characters A-Z a-z 0-9 . _ -, not beginning with a dot or a dash"
