"""The Python environment of a bundle inside a task's image: putting it there, and finding it from a shell."""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SDK_REQUIREMENTS_FILENAME = "osmosis-requirements.txt"
SDK_ROOT = "/opt/osmosis"
SDK_VENV = f"{SDK_ROOT}/venv"
SDK_UV = f"{SDK_ROOT}/bin/uv"
# A statically linked binary: it runs in every Linux image.
UV_IMAGE = "ghcr.io/astral-sh/uv:0.9"

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")


def venv_or_fallback_script(name: str) -> str:
    """Shell text that runs a program of the bundle in place of the shell: from the prepared environment, else from the path."""
    program = shlex.quote(name)
    return f"if [ -x {SDK_VENV}/bin/{program} ]; then exec {SDK_VENV}/bin/{program}; else exec {program}; fi"


def venv_or_fallback_install(wheel: str | Path) -> str:
    """Shell text that installs a bundle, given by its path in the container.

    The prepared environment has the dependencies already, so that installing there needs no network. Elsewhere they come with
    the wheel, into the container's Python (3.12 or newer).
    """
    path = shlex.quote(str(wheel))
    return "\n".join(
        (
            f"if [ -x {SDK_UV} ] && [ -x {SDK_VENV}/bin/python ]; then",
            f"  {SDK_UV} pip install --quiet --offline --no-deps --python {SDK_VENV}/bin/python {path}",
            f"elif [ -x {SDK_VENV}/bin/python ]; then",
            f"  {SDK_VENV}/bin/python -m pip install --quiet --disable-pip-version-check --no-deps {path}",
            "else",
            f"  PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install {path}",
            "fi",
        )
    )


def patch_dockerfile_with_sdk(
    env_dir: Path, requirements: str | Iterable[str], *, writable: bool = False
) -> None:
    """Let the image be built with an environment that holds the requirements (lines of a requirements file).

    The last stage gets it, and keeps its user. With a ``.dockerignore`` the requirements file is taken out of it. Only root may
    install into the environment, so that an agent with fewer rights cannot change the grader; ``writable`` lets everybody.

    Raises:
        ValueError: when there is no Dockerfile.
    """
    dockerfile = env_dir / "Dockerfile"
    if not dockerfile.is_file():
        raise ValueError(
            f"cannot patch Dockerfile: {dockerfile} does not exist; add one, or construct the backend with "
            "patch_dockerfile_with_sdk=False and prepare the environment yourself"
        )
    lines = requirements.splitlines() if isinstance(requirements, str) else list(requirements)
    (env_dir / SDK_REQUIREMENTS_FILENAME).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = dockerfile.read_text(encoding="utf-8")
    user = _user_of_last_stage(text)
    is_root = user is not None and user.partition(":")[0] in {"root", "0"}
    added = [
        *([] if is_root else ["USER root"]),
        f"COPY --from={UV_IMAGE} /uv {SDK_UV}",
        f"COPY {SDK_REQUIREMENTS_FILENAME} {SDK_ROOT}/{SDK_REQUIREMENTS_FILENAME}",
        f"RUN UV_PYTHON_INSTALL_DIR={SDK_ROOT}/python {SDK_UV} venv {SDK_VENV} --python 3.12 \\",
        f" && {SDK_UV} pip install --no-cache --python {SDK_VENV}/bin/python -r {SDK_ROOT}/{SDK_REQUIREMENTS_FILENAME}",
        *([f"RUN chmod -R a+rwX {SDK_VENV}"] if writable else []),
        *([f"USER {user}"] if user is not None and not is_root else []),
    ]
    dockerfile.write_text(text.rstrip() + "\n\n" + "\n".join(added) + "\n", encoding="utf-8")
    for name in (".dockerignore", "Dockerfile.dockerignore"):
        ignore = env_dir / name
        if ignore.is_file():
            kept = ignore.read_text(encoding="utf-8").rstrip("\n")
            ignore.write_text(f"{kept}\n!{SDK_REQUIREMENTS_FILENAME}\n", encoding="utf-8")


@dataclass
class _Stage:
    name: str | None
    base: str
    user: str | None = None


def _user_of_last_stage(text: str) -> str | None:
    """The user that the last stage ends with, also where it comes from an earlier stage; None when only its image knows."""
    stages: list[_Stage] = []
    for keyword, rest in _instructions(text):
        if keyword == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            name = words[2] if len(words) == 3 and words[1].lower() == "as" else None
            stages.append(_Stage(name=name, base=words[0] if words else ""))
        elif keyword == "USER" and stages:
            stages[-1].user = rest.strip()
    named: dict[str, str | None] = {}
    for index, stage in enumerate(stages):
        if stage.user is None:
            stage.user = named.get(stage.base.lower())
        named[str(index)] = stage.user
        if stage.name is not None:
            named[stage.name.lower()] = stage.user
    return stages[-1].user if stages else None


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Keyword and argument of each instruction; continued lines are joined, comments and heredoc bodies left out."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.rstrip().endswith("\\"):
            following = next(lines, "")
            if following.lstrip().startswith("#"):
                continue
            line = line.rstrip()[:-1] + " " + following
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        keyword = match.group(1).upper()
        if keyword in {"RUN", "COPY", "ADD"}:
            for heredoc in _HEREDOC.finditer(line):
                for body in lines:
                    if body.strip() == heredoc.group(2):
                        break
        yield keyword, match.group(2)
