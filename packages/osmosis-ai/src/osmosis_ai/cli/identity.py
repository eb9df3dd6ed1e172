"""Which repository a checkout belongs to: ``owner/repo`` from the address of its remote."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.git import run_git
from osmosis_ai.platform.urls import is_loopback

_SCP = re.compile(r"^(?:([^@/\s]+)@)?([^:/\s]+):(?!//)(.+)$")
_WHOLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_ESCAPES = ("%2f", "%5c")


@dataclass(frozen=True, slots=True)
class Identity:
    """``identity`` is lower-case ``owner/repo``; ``remote_url`` is the address without credentials."""

    identity: str
    remote_url: str


def origin_identity(root: Path, platform_url: str) -> Identity:
    """The identity of a checkout's ``origin``.

    A push address on the platform's own Git host decides: that is where the code to run goes. Otherwise the fetch address
    counts; it may be on the platform or on github.com.

    Raises:
        CLIError: no ``origin``, or an address on another host.
    """
    fetch = run_git(root, "remote", "get-url", "origin")
    if not fetch:
        raise CLIError(
            "This repository has no remote named `origin`. Set `origin` to the Platform-connected repository: "
            "git remote add origin <address>"
        )
    push = run_git(root, "remote", "get-url", "--push", "origin")
    if push and push != fetch and _platform_path(push, platform_url) is not None:
        return parse_remote(push, platform_url)
    return parse_remote(fetch, platform_url)


def parse_remote(url: str, platform_url: str) -> Identity:
    """The identity in a remote's address.

    Raises:
        CLIError: the address is not on github.com nor on the platform, or it is not ``owner/repo``.
    """
    if any(character.isspace() or not character.isprintable() for character in url):
        raise CLIError("The address of `origin` contains whitespace or control characters.")
    try:
        shown = without_credentials(url)
    except ValueError:
        raise CLIError("The address of `origin` is no address. Check `git remote get-url origin`.") from None
    path = _platform_path(shown, platform_url)
    if path is None:
        parts = urlsplit(shown)
        if (parts.hostname or "").lower() != "github.com":
            raise CLIError(
                f"`origin` ({shown}) must be hosted on github.com or on the platform ({platform_url}). If it is on another "
                "platform, say which: export OSMOSIS_PLATFORM_URL=<its address>. Otherwise set `origin` to the "
                "Platform-connected repository: git remote set-url origin <address>",
                details={"remote_url": shown},
            )
        path = parts.path
    name = path.strip("/").removesuffix(".git")
    if any(escape in path.lower() for escape in _ESCAPES) or not _WHOLE.fullmatch(name):
        raise CLIError(f"`origin` ({shown}) is not of the form owner/repo.", details={"remote_url": shown})
    return Identity(name.lower(), shown)


def without_credentials(url: str) -> str:
    """The address without user and password; ``git@host:owner/repo`` becomes ``ssh://git@host/owner/repo``."""
    scp = None if "://" in url else _SCP.match(url)
    if scp is not None:
        user, host, path = scp.groups()
        return f"ssh://{user or 'git'}@{host}/{path.lstrip('/')}"
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme == "ssh":
        user = parts.username or "git"
        host = f"{user}@{host}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _platform_path(url: str, platform_url: str) -> str | None:
    """The path below the platform's Git host, or None when the address is elsewhere."""
    try:
        ours, theirs = urlsplit(platform_url), urlsplit(without_credentials(url))
        same_port = _port(ours.scheme, ours.port) == _port(theirs.scheme, theirs.port)
    except ValueError:
        return None
    our_host, their_host = (ours.hostname or "").lower(), (theirs.hostname or "").lower()
    same_host = our_host == their_host or (is_loopback(our_host) and is_loopback(their_host))
    if theirs.scheme.lower() != ours.scheme or not same_port or not same_host:
        return None
    path = theirs.path.removeprefix(ours.path) if ours.path else theirs.path
    return path.removeprefix("/git") if path.startswith("/git/") and path.strip("/").count("/") == 2 else path


def _port(scheme: str, port: int | None) -> int | None:
    return port if port is not None else {"http": 80, "https": 443}.get(scheme.lower())
