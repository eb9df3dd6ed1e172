"""The files that rollouts left: of finished attempts, and of the training samples kept for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.runs.models import RunArtifact, RunAttempt, RunSample, RunSampleArtifact
from osmosis_platform.runs.upsert import insert_missing
from osmosis_platform.runs.wire import AttemptEvent, SampleEvent
from osmosis_platform.storage.signing import UrlSigner

# As many as a rollout can leave (osmosis_ai.worker.rollout_files).
SHOWN = 1000

_Owner = type[RunAttempt] | type[RunSample]
# The table of an owner's files, and what names the owner within its run.
_FILES: dict[_Owner, tuple[type[RunArtifact] | type[RunSampleArtifact], tuple[str, ...]]] = {
    RunAttempt: (RunArtifact, ("row_index", "run_index")),
    RunSample: (RunSampleArtifact, ("step", "row_index", "sample_index")),
}


def keep_artifacts(
    session: Session, run_id: str, owner: _Owner, events: Sequence[AttemptEvent] | Sequence[SampleEvent]
) -> None:
    """Keep the files of attempts or samples that were kept: a repeated one under another rollout id brings none."""
    table, names = _FILES[owner]
    rows: list[dict[str, Any]] = []
    for event in events:
        place = {name: getattr(event, name) for name in names}
        if event.artifacts and _kept_of(session, owner, (run_id, *place.values())) == event.rollout_id:
            rows += [{"run_id": run_id, **place, **file.model_dump()} for file in event.artifacts]
    insert_missing(session, table, rows)


def _kept_of(session: Session, owner: _Owner, key: tuple[Any, ...]) -> str | None:
    """The rollout that was kept in this place."""
    kept: Any = session.get(owner, key)
    return None if kept is None else str(kept.rollout_id)


def artifact_links(session: Session, urls: UrlSigner, of: RunAttempt | RunSample) -> list[dict[str, Any]]:
    """Path, size and signed address of each file."""
    table, names = _FILES[type(of)]
    place = [getattr(table, name) == getattr(of, name) for name in ("run_id", *names)]
    query = select(table.path, table.size, table.sha256).where(*place).order_by(table.path).limit(SHOWN)
    return [
        {"path": path, "size": size, "url": urls.download_url(sha256, path)}
        for path, size, sha256 in session.execute(query)
    ]
