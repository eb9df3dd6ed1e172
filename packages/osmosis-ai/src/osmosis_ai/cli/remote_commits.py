"""Whether a commit has reached the remote repository: the platform can only run what is there."""

import shutil
import subprocess
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from osmosis_ai.cli.git import has_commit, run_git
from osmosis_ai.cli.identity import Identity, without_credentials

_TIMEOUT_S = 15
_MOST_BRANCHES = 200  # asking about each costs a few milliseconds


class Presence(Enum):
    """What is known about a commit on the remote."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


def presence_on_remote(root: Path, identity: Identity, sha: str) -> Presence:
    """Look where it is cheapest first: remote branches as last fetched, the GitHub CLI, then the remote itself.

    A remote that cannot be asked - offline, or without a login - leaves it unknown.
    """
    if run_git(root, "for-each-ref", "--count=1", f"--contains={sha}", "refs/remotes/origin"):
        return Presence.FOUND
    if urlsplit(identity.remote_url).hostname == "github.com":
        answer = _ask_github(identity.identity, sha)
        if answer is not Presence.UNKNOWN:
            return answer
    return _ask_remote(root, identity, sha)


def _ask_github(repository: str, sha: str) -> Presence:
    if shutil.which("gh") is None:
        return Presence.UNKNOWN
    command = ["gh", "api", f"repos/{repository}/commits/{sha}", "--silent"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Presence.UNKNOWN
    if answer.returncode == 0:
        return Presence.FOUND
    return Presence.ABSENT if "HTTP 422" in answer.stderr else Presence.UNKNOWN


def _ask_remote(root: Path, identity: Identity, sha: str) -> Presence:
    """Compare with the remote's branches. That decides only when every one of them is known here."""
    listed = run_git(root, "ls-remote", _address(root, identity), timeout_s=_TIMEOUT_S)
    if listed is None:
        return Presence.UNKNOWN
    tips = dict(line.split("\t", 1) for line in listed.splitlines() if "\t" in line)
    if any(tip.startswith(sha.lower()) for tip in tips):
        return Presence.FOUND
    branches = [tip for tip, name in tips.items() if name.startswith(("refs/heads/", "refs/tags/"))]
    known = [tip for tip in branches[:_MOST_BRANCHES] if has_commit(root, tip)]
    local = has_commit(root, sha)
    if local and any(run_git(root, "merge-base", "--is-ancestor", sha, tip) is not None for tip in known):
        return Presence.FOUND
    return Presence.ABSENT if len(known) == len(branches) else Presence.UNKNOWN


def _address(root: Path, identity: Identity) -> str:
    """``origin``, unless its push address is the one that decided the identity."""
    push = run_git(root, "remote", "get-url", "--push", "origin")
    fetch = run_git(root, "remote", "get-url", "origin")
    if push and fetch and push != fetch and without_credentials(push) == identity.remote_url:
        return push
    return "origin"
