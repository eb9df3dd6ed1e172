"""git as a client of another host: what a repository there has, and fetching it into a mirror here.

Nothing but HTTPS to the very address that was checked, without redirects, prompts, hooks, submodules or the machine's own
configuration. An access token reaches git in its environment only, and git asks a helper for it when the host wants one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from osmosis_ai.processes.launch import command_line
from osmosis_platform.errors import InvalidInput
from osmosis_platform.repositories.git import NAME, GitError, git_environment, run_git
from osmosis_platform.webhooks.addresses import check_url, resolve

WHAT = "repository address"
MAX_FETCH_BYTES = 512 * 1024 * 1024
# A host that sends less than this many bytes a second for so many seconds is given up.
_SLOWEST, _PATIENCE = "500", "20"
_STOP_SECONDS = 5.0
_HELPER = '!f() { [ "$1" = get ] && printf "username=x-access-token\\npassword=%s\\n" "$OSMOSIS_REPOSITORY_TOKEN"; }; f'
_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")


class RemoteError(GitError):
    """The other host refused or cannot be reached; the message says what to do."""

    status, code = 400, "REPOSITORY_UNREACHABLE"


@dataclass(frozen=True, slots=True)
class Origin:
    """A repository on another host. `full_name` is `owner/repo` as its address spells it."""

    url: str
    full_name: str
    token: str | None = field(default=None, repr=False)


def origin_of(url: str, token: str | None, *, anywhere: bool) -> Origin:
    """The repository at an address `https://host/owner/repo`, with or without `.git`; nothing is asked yet. Raises InvalidInput."""
    parts = check_url(url.strip(), anywhere=anywhere, what=WHAT)
    full_name = parts.path.strip("/").removesuffix(".git")
    if parts.query or not NAME.match(full_name) or ".." in full_name or full_name.endswith("."):
        raise InvalidInput(
            "The repository address has to look like https://github.com/owner/repository.", field="url"
        )
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidInput("The access token has characters that no token has.", field="token")
    return Origin(f"{parts.scheme}://{parts.netloc.lower()}/{full_name}.git", full_name, token or None)


def default_branch(origin: Origin, *, anywhere: bool, seconds: float) -> str | None:
    """Ask the host for the repository's default branch; None when it has no commit. Raises RemoteError or InvalidInput."""
    out = _run(["ls-remote", "--symref", origin.url, "HEAD"], None, origin, anywhere, seconds)
    found = re.search(rb"^ref: refs/heads/(\S+)\tHEAD$", out, re.MULTILINE)
    return found.group(1).decode("utf-8", "replace") if found else None


def fetch(mirror: Path, origin: Origin, *, anywhere: bool, seconds: float) -> None:
    """Bring branches and tags of a mirror to what the host has; those that are gone there go here. Raises RemoteError.

    Only one at a time per mirror. Commits that no branch has any more stay: runs may be pinned to them.
    """
    _clear(mirror)
    command = ["fetch", "--quiet", "--prune", "--force", "--no-tags", "--no-recurse-submodules",
               "--no-write-fetch-head", "--no-auto-maintenance", origin.url, *_REFSPECS]  # fmt: skip
    try:
        _run(command, mirror, origin, anywhere, seconds)
    finally:
        _clear(mirror)


def set_head(mirror: Path, branch: str) -> None:
    """Make a branch the one that clones check out."""
    run_git("symbolic-ref", "HEAD", f"refs/heads/{branch}", cwd=mirror)


def _clear(mirror: Path) -> None:
    """Remove what a fetch that was killed left: nobody else writes here."""
    for pattern in ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*"):
        for path in mirror.glob(pattern):
            with suppress(OSError):
                path.unlink()


def _configuration(origin: Origin, anywhere: bool) -> dict[str, str]:
    destination = resolve(origin.url, anywhere=anywhere, what=WHAT)
    ip = f"[{destination.ip}]" if ":" in destination.ip else destination.ip
    settings = {
        "safe.directory": "*",
        "core.hooksPath": "/dev/null",
        "http.followRedirects": "false",
        "http.lowSpeedLimit": _SLOWEST,
        "http.lowSpeedTime": _PATIENCE,
        "fetch.unpackLimit": "1",  # everything in one file, whose size is limited
        "fetch.recurseSubmodules": "false",
        "credential.helper": _HELPER if origin.token else "",
    }
    if destination.ip != destination.host:
        settings["http.curloptResolve"] = f"{destination.host}:{destination.port}:{ip}"
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    allowed = "http:https" if anywhere else "https"
    secret = {"OSMOSIS_REPOSITORY_TOKEN": origin.token} if origin.token else {}
    return {**git_environment(), **numbered, "GIT_ALLOW_PROTOCOL": allowed, "GIT_ASKPASS": "", **secret}


def _run(arguments: list[str], cwd: Path | None, origin: Origin, anywhere: bool, seconds: float) -> bytes:
    environment: Mapping[str, str] = _configuration(origin, anywhere)
    command = command_line(os.getpid(), ["git", *arguments], ["--file-bytes", str(MAX_FETCH_BYTES)])
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise RemoteError(f"{_host(origin)} did not finish within {seconds:.0f} seconds.") from None
    if process.returncode:
        raise RemoteError(_reason(err.decode("utf-8", "replace"), origin))
    return out


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and its helpers; gently first, so that it takes its locks away."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    process.kill()


def _host(origin: Origin) -> str:
    return urlsplit(origin.url).netloc


def _reason(said: str, origin: Origin) -> str:
    """A sentence of what git said, without the token should the host have sent it back."""
    if origin.token:
        said = said.replace(origin.token, "***")
    host, low = _host(origin), said.lower()
    if origin.token and ("authentication failed" in low or "error: 403" in low):
        return f"{host} refused the access token: it is wrong, has ended, or may not read {origin.full_name}."
    if "could not read username" in low or "could not read password" in low:
        return f"{host} shows {origin.full_name} only with an access token that may read it, or there is no such repository."
    if "not found" in low or "error: 404" in low:
        return f"{host} has no repository {origin.full_name}, or the access token may not read it."
    if re.search(r"error: 30\d|redirect", low):
        return f"{host} sends {origin.full_name} elsewhere: connect its new address."
    if "signal 25" in low or "file too large" in low:
        return f"{origin.full_name} is larger than {MAX_FETCH_BYTES // 2**20} MiB."
    if "could not resolve" in low or "failed to connect" in low or "couldn't connect" in low:
        return f"{host} cannot be reached."
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return f"Fetching from {host} failed: {lines[-1][:300] if lines else 'git ended without a word'}"
