"""Upgrading this program from where it was installed, and from nowhere else.

The name of the distribution alone does not say where it came from: another index may hold a different program of the same
name. The installer's record (PEP 610, ``direct_url.json``) tells about folders, files and Git; ``uv tool`` and ``pipx`` remember
their index. ``pip`` does not, so the user names it.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.consts import PACKAGE_NAME, PACKAGE_VERSION

INDEX_VARIABLE = "OSMOSIS_UPGRADE_INDEX_URL"
_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the installed distribution came from. ``kind``: index, local, editable, git or archive."""

    kind: str
    url: str | None = None
    revision: str | None = None


def installed_origin() -> Origin:
    """The origin as the installer recorded it."""
    text = distribution(PACKAGE_NAME).read_text("direct_url.json")
    if text is None:
        return Origin("index")
    record: dict[str, Any] = json.loads(text)
    url = str(record["url"])
    if "vcs_info" in record:
        return Origin("git", url, record["vcs_info"].get("requested_revision"))
    if "dir_info" in record:
        return Origin("editable" if record["dir_info"].get("editable") else "local", url)
    return Origin("archive", url)


def upgrade_installation() -> OperationResult:
    """Ask the tool that installed this program for a newer version from the same origin.

    A program installed from a local folder or an archive is left alone: the message says how to refresh it there.
    """
    origin = installed_origin()
    resource: dict[str, Any] = {"installed_version": PACKAGE_VERSION, "latest_version": None}
    if origin.kind in {"editable", "local", "archive"}:
        return OperationResult(
            "upgrade",
            status="no_update",
            resource={**resource, "method": origin.kind},
            message=_local_text(origin),
        )
    method, command = upgrade_command(origin, sys.executable, os.environ.get(INDEX_VARIABLE, "").strip())
    if not command:
        return OperationResult(
            "upgrade", status="no_update", resource={**resource, "method": method}, message=_INDEX_TEXT
        )
    with status("Upgrading..."):
        answer = _run(command)
    after = _version_now() if answer.returncode == 0 else PACKAGE_VERSION
    resource |= {
        "latest_version": after,
        "method": method,
        "command": " ".join(command),
        "stdout": answer.stdout,
        "stderr": answer.stderr,
    }
    if answer.returncode != 0:
        return OperationResult(
            "upgrade",
            status="failed",
            resource=resource,
            message=f"Upgrade failed: {' '.join(command)}\n{answer.stderr.strip()[-2000:]}",
        )
    if after == PACKAGE_VERSION:
        return OperationResult(
            "upgrade", status="no_update", resource=resource, message="Already up to date."
        )
    return OperationResult("upgrade", resource=resource, message=f"Upgraded {PACKAGE_VERSION} to {after}.")


def upgrade_command(origin: Origin, executable: str, index_url: str) -> tuple[str, list[str]]:
    """How to upgrade: the method and its command; no command when nobody knows which index it came from."""
    parts = executable.replace(os.sep, "/")
    if "/uv/tools/" in parts and shutil.which("uv"):
        return "uv", ["uv", "tool", "upgrade", PACKAGE_NAME]
    if "/pipx/venvs/" in parts and shutil.which("pipx"):
        return "pipx", ["pipx", "upgrade", PACKAGE_NAME]
    if origin.kind == "git":
        revision = f"@{origin.revision}" if origin.revision else ""
        what = [f"{PACKAGE_NAME} @ git+{origin.url}{revision}"]
    elif index_url:
        what = ["--index-url", index_url, PACKAGE_NAME]
    else:
        return "pip", []
    if shutil.which("uv"):
        return "pip", ["uv", "pip", "install", "--python", executable, "--upgrade", *what]
    return "pip", [executable, "-m", "pip", "install", "--upgrade", *what]


_INDEX_TEXT = (
    f"pip does not remember which index this program came from, and {PACKAGE_NAME} on another index may be a different program. "
    f"Repeat the command that you installed it with, adding --upgrade, or set {INDEX_VARIABLE} to that index."
)


def _local_text(origin: Origin) -> str:
    parts = urlsplit(origin.url or "")
    place = parts.path if parts.scheme == "file" else origin.url
    if origin.kind == "editable":
        return f"Installed from the source folder {place} (editable): update that folder, for example with git pull."
    if origin.kind == "local":
        return f"Installed from the folder {place}: update it there, then install it again with: pip install {quote(str(place))}"
    return f"Installed from the file {place}: install a newer file from the same place to upgrade."


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {_TIMEOUT_S} s")


def _version_now() -> str:
    """The installed version as a fresh interpreter sees it."""
    code = f"import importlib.metadata as m; print(m.version({PACKAGE_NAME!r}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or PACKAGE_VERSION
