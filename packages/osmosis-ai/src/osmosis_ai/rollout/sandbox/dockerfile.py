"""The part of a task's Dockerfile that holds without building it: ``WORKDIR``, ``ENV``, and ``COPY`` of files beside it."""

import copy
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Template

DEFAULT_WORKDIR = "/app"
# They describe the image, and are not part of it where nothing says what is.
NOT_COPIED = frozenset({"Dockerfile", "Dockerfile.dockerignore", ".dockerignore", "osmosis-requirements.txt"})


@dataclass(frozen=True, slots=True)
class Copy:
    """Files of the task, as patterns, and where they go: a folder when the path ends in a slash."""

    sources: tuple[str, ...]
    target: str


@dataclass(slots=True)
class Image:
    """What the last stage of a Dockerfile says. ``copies`` is empty when it copies nothing of the task's files."""

    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)


def read_dockerfile(path: Path) -> Image:
    """Read a Dockerfile; one that does not exist says nothing. Instructions that only a build can follow are passed over."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return Image()
    image = Image()
    stages: dict[str, Image] = {}
    for keyword, rest in _instructions(text):
        if keyword == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            image = copy.deepcopy(stages.get(words[0].lower(), Image())) if words else Image()
            if len(words) == 3:
                stages[words[2].lower()] = image
            continue
        words = _words(rest, image)
        if keyword == "ENV":
            image.env |= _assignments(words)
        elif keyword == "WORKDIR" and words:
            image.workdir = str(PurePosixPath(image.workdir or "/", words[0]))
        elif keyword in ("COPY", "ADD"):
            image.copies += _copies(words, image)
    return image


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    joined = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        joined += stripped.removesuffix("\\") + " "
        if not stripped.endswith("\\"):
            keyword, _, rest = joined.strip().partition(" ")
            yield keyword.upper(), rest.strip()
            joined = ""


def _words(rest: str, image: Image) -> list[str]:
    try:
        words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    except ValueError:
        return []  # not an instruction that is of use here
    return [Template(str(word)).safe_substitute(image.env) for word in words]


def _assignments(words: list[str]) -> dict[str, str]:
    if words and "=" not in words[0]:  # the old form: a name, then its value
        return {words[0]: " ".join(words[1:])}
    return {name: value for name, found, value in (word.partition("=") for word in words) if found}


def _copies(words: list[str], image: Image) -> Iterator[Copy]:
    if any(word.startswith(("--from", "<<")) or "://" in word for word in words):
        return
    *sources, target = [word for word in words if not word.startswith("--")] or [""]
    if sources and not NOT_COPIED.issuperset(sources):
        place = str(PurePosixPath(image.workdir or "/", target))
        folder = target.endswith(("/", ".")) or len(sources) > 1
        yield Copy(tuple(sources), f"{place.rstrip('/')}/" if folder else place)
