"""Applies the events of a worker to its run: any number of them in one transaction, each as often as it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from osmosis_platform.adapters.checkpoints import record_checkpoint
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput
from osmosis_platform.evaluation.results import refresh_results_soon
from osmosis_platform.runs.artifacts import keep_artifacts
from osmosis_platform.runs.blobs import named_blobs, with_kept_blobs
from osmosis_platform.runs.blocks import refresh_blocks
from osmosis_platform.runs.models import LogLine, Run, RunAttempt, RunMetric, RunSample
from osmosis_platform.runs.upsert import insert_missing, insert_or_replace
from osmosis_platform.runs.wire import (
    AttemptEvent,
    CheckpointEvent,
    Event,
    FailedEvent,
    LogEvent,
    MetricsEvent,
    ProgressEvent,
    SampleEvent,
)
from osmosis_platform.storage.store import BlobStore

# The reward of a training run as lists show it: the latest mean reward of its rollouts.
REWARD_METRIC = "rollout/raw_reward"


def apply_events(session: Session, blobs: BlobStore, run: Run, events: Sequence[Event]) -> int:
    """Apply events in the order sent; returns how many there were. The caller's transaction makes them one.

    Raises InvalidInput when an event names a blob that was not uploaded; then nothing of the call is kept.
    """
    events = with_kept_blobs(session, run.id, events)
    _require_blobs(blobs, events)
    for event in events:  # first: results that attempts bring up to date need the number of rows
        if isinstance(event, ProgressEvent):
            _progress(run, event)
    _logs(session, run, [event for event in events if isinstance(event, LogEvent)])
    _metrics(session, run, [event for event in events if isinstance(event, MetricsEvent)])
    _attempts(session, run, [event for event in events if isinstance(event, AttemptEvent)])
    _samples(session, run, [event for event in events if isinstance(event, SampleEvent)])
    for event in events:
        if isinstance(event, CheckpointEvent):
            record_checkpoint(session, run, step=event.step, reward=event.reward, blob_sha256=event.blob)
        elif isinstance(event, FailedEvent):
            run.error, run.error_type = event.reason, event.error_type
    return len(events)


def _require_blobs(blobs: BlobStore, events: Sequence[Event]) -> None:
    for sha256 in sorted(named_blobs(events)):
        if not blobs.exists(sha256):
            raise InvalidInput(f"Blob {sha256} was not uploaded; PUT it before the event that names it.")


def _logs(session: Session, run: Run, events: Sequence[LogEvent]) -> None:
    insert_missing(
        session,
        LogLine,
        [
            {
                "owner_id": run.id,
                "event_id": event.id,
                "timestamp": event.timestamp,
                "level": event.level,
                "step": event.step,
                "message": event.message,
                "details": event.details,
            }
            for event in events
        ],
    )


def _metrics(session: Session, run: Run, events: Sequence[MetricsEvent]) -> None:
    rows = [
        {"run_id": run.id, "key": key, "step": event.step, "value": value, "timestamp": event.timestamp}
        for event in events
        for key, value in event.values.items()
    ]
    insert_or_replace(session, RunMetric, rows, replace=("value", "timestamp"))
    refresh_blocks(session, run.id, [(key, event.step) for event in events for key in event.values])
    rewards = [event.values[REWARD_METRIC] for event in events if REWARD_METRIC in event.values]
    if rewards and run.kind == "train":
        run.reward = rewards[-1]


def _attempts(session: Session, run: Run, events: Sequence[AttemptEvent]) -> None:
    if not events:
        return
    if run.kind != "eval":
        raise InvalidInput("Only evaluations have attempts.")
    finished = {(event.row_index, event.run_index): event for event in reversed(events)}
    insert_missing(
        session,
        RunAttempt,
        [
            {
                "run_id": run.id,
                "trajectory_sha256": event.trajectory_blob,
                "finished_at": utc_now(),
                **event.model_dump(exclude={"type", "trajectory_blob", "artifacts"}),
            }
            for event in finished.values()
        ],
    )
    keep_artifacts(session, run.id, RunAttempt, list(finished.values()))
    refresh_results_soon(session, run)


def _samples(session: Session, run: Run, events: Sequence[SampleEvent]) -> None:
    insert_missing(
        session,
        RunSample,
        [
            {
                "run_id": run.id,
                "blob_sha256": event.blob,
                **event.model_dump(exclude={"type", "blob", "artifacts"}),
            }
            for event in events
        ],
    )
    keep_artifacts(session, run.id, RunSample, events)


def _progress(run: Run, event: ProgressEvent) -> None:
    for name, value in event.model_dump(exclude={"type"}, exclude_none=True).items():
        setattr(run, name, value)
