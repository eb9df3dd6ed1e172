"""The little of a task's Dockerfile that holds without building it."""

from pathlib import Path, PurePosixPath

NOT_FOR_THE_SANDBOX = frozenset(
    {"Dockerfile", "Dockerfile.dockerignore", ".dockerignore", "osmosis-requirements.txt"}
)


def working_dir(dockerfile: Path) -> str | None:
    """The working folder of the last stage, None when it sets none or there is no Dockerfile."""
    try:
        lines = dockerfile.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    found: PurePosixPath | None = None
    for line in lines:
        keyword, _, rest = line.strip().partition(" ")
        value = rest.strip().strip("\"'")
        if keyword.upper() == "FROM":
            found = None
        elif keyword.upper() == "WORKDIR" and value and "$" not in value:
            found = (found or PurePosixPath("/")) / value
    return None if found is None else str(found)
