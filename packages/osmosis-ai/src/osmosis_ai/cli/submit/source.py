"""Which code the platform will run, compared with what lies here. Git state never stops a submit."""

from dataclasses import dataclass, field
from pathlib import Path

from osmosis_ai.cli.git import has_commit, tree_state


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Notes and warnings for the confirmation."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def describe_source(root: Path, branch: str | None, commit_sha: str | None) -> SourceReport:
    """Where the code comes from, and how the local tree differs from it."""
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
    if commit_sha is None:
        notes.append("No commit_sha is set: the platform's source may differ from the local branch.")
    notes.append("Changes must be committed and pushed to take part in the run.")
    warnings: list[str] = []
    if commit_sha is not None and not has_commit(root, commit_sha):
        warnings.append(f"Commit {commit_sha[:8]} is not known locally; the platform looks it up.")
    if state.dirty:
        warnings.append("Uncommitted changes will not be part of the run.")
    if state.unpushed:
        warnings.append(
            f"{state.unpushed} unpushed commit{'s' if state.unpushed > 1 else ''} will not be part of the run."
        )
    if state.branch is not None and state.unpushed is None:
        warnings.append(
            f"The branch '{state.branch}' has no upstream; push it with: git push -u origin {state.branch}"
        )
    return SourceReport(notes, warnings)
