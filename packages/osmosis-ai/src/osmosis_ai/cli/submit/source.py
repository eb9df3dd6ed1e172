"""Which code the platform will run, compared with what lies here.

Git state does not stop a submit, except a pinned commit that is known not to be on the remote.
"""

from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.git import has_commit, tree_state
from osmosis_ai.cli.identity import Identity
from osmosis_ai.cli.remote_commits import Presence, presence_on_remote


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Notes and warnings for the confirmation; ``reminders`` are warnings that hold for most submits."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reminders: list[str] = field(default_factory=list)


def describe_source(
    root: Path, identity: Identity, branch: str | None, commit_sha: str | None
) -> SourceReport:
    """Where the code comes from, and how the local tree differs from it.

    Raises:
        CLIError: the pinned commit is known not to be on the remote.
    """
    state = tree_state(root)
    if commit_sha is not None:
        origin = f"commit {commit_sha[:8]} of the Platform-connected repository"
    elif branch is not None:
        origin = f"branch '{branch}' of the Platform-connected repository"
    else:
        origin = "the default branch of the Platform-connected repository"
    notes = [f"Rollout code comes from {origin}; config values come from the local file."]
    if state.head is not None:
        notes.append(f"Local: {state.branch or 'detached HEAD'} @ {state.head[:8]}.")
    reminders: list[str] = []
    if commit_sha is None:
        reminders.append("No commit_sha is set: the platform's source may differ from the local branch.")
    notes.append("Changes must be committed and pushed to take part in the run.")
    warnings: list[str] = []
    if commit_sha is not None:
        warnings += _pinned(root, identity, commit_sha)
    if state.dirty:
        warnings.append("Uncommitted changes will not be part of the run.")
    if state.unpushed:
        warnings.append(
            f"{state.unpushed} unpushed commit{'s' if state.unpushed > 1 else ''} will not be part of the run."
        )
    if state.branch is not None and state.unpushed is None:
        warnings.append(
            f"The branch '{state.branch}' has no upstream; push it with: git push -u origin {quote(state.branch)}"
        )
    return SourceReport(notes, warnings, reminders)


def _pinned(root: Path, identity: Identity, sha: str) -> list[str]:
    """Warnings about a pinned commit."""
    presence = presence_on_remote(root, identity, sha)
    local = has_commit(root, sha)
    if presence is Presence.ABSENT:
        raise CLIError(
            f"Commit {sha[:8]} exists locally but was not found on origin. Push it first: git push"
            if local
            else f"Commit {sha[:8]} was not found on the connected repository ({identity.remote_url}).",
            details={"field": "experiment.commit_sha", "commit_sha": sha},
        )
    if presence is Presence.UNKNOWN and not local:
        return [
            f"Commit {sha[:8]} is not known locally and the remote could not be asked; the platform looks it up."
        ]
    return []
