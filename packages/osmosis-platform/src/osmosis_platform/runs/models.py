"""Tables of runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now

TERMINAL = frozenset({"finished", "failed", "crashed", "stopped", "killed"})


class Run(Identified, Base):
    """An evaluation (`kind` = `eval`) or training (`train`) run.

    `status`: pending, running, finished, failed, stopped; training also crashed. `commit_sha` is resolved once, at submit.
    `round` counts the retries of an evaluation. `config` holds the submitted sections with every default filled in; `env` only
    literal values, never secrets. `submit_key` is the name the client gave the request, `submit_digest` what the request said.
    """

    __tablename__ = "runs"
    follows = "id"
    __table_args__ = (
        UniqueConstraint("workspace_id", "name"),
        Index("ix_runs_workspace_kind_created", "workspace_id", "kind", "created_at"),
        Index("ix_runs_submit_key", "workspace_id", "creator_id", "submit_key", unique=True),
    )
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"))
    kind: Mapped[str]
    name: Mapped[str]
    status: Mapped[str] = mapped_column(default="pending")
    phase: Mapped[str | None]
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    rollout_name: Mapped[str]
    rollout_id: Mapped[str | None] = mapped_column(ForeignKey("rollouts.id", ondelete="SET NULL"))
    entrypoint: Mapped[str]
    branch: Mapped[str | None]
    commit_sha: Mapped[str]
    model_path: Mapped[str]
    base_model_id: Mapped[str | None] = mapped_column(ForeignKey("base_models.id"))
    dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"))
    config: Mapped[dict[str, Any]]
    env: Mapped[dict[str, Any]] = mapped_column(default=dict)
    secret_names: Mapped[list[Any]] = mapped_column(default=list)
    secret_scopes: Mapped[dict[str, Any]] = mapped_column(default=dict)
    provided_names: Mapped[list[Any]] = mapped_column(default=list)
    run_token_hash: Mapped[str | None] = mapped_column(unique=True)
    stop_requested_at: Mapped[datetime | None]
    current_step: Mapped[int | None]
    total_steps: Mapped[int | None]
    examples_processed: Mapped[int | None]
    total_runs: Mapped[int | None]
    sampled_rows: Mapped[int | None]
    reward: Mapped[float | None]
    results: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
    error_type: Mapped[str | None]
    notes: Mapped[str | None]
    local_run: Mapped[dict[str, Any] | None]
    submit_key: Mapped[str | None]
    submit_digest: Mapped[str | None]
    restarts: Mapped[int] = mapped_column(default=0)
    round: Mapped[int] = mapped_column(default=0)


class RunSecret(Base):
    """A secret value given for one run only; ciphertext, deleted when the run ends."""

    __tablename__ = "run_secrets"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str]
    nonce: Mapped[bytes]
    ciphertext: Mapped[bytes]


class RunMetric(Base):
    """One value of one metric at one step."""

    __tablename__ = "run_metrics"
    follows = "run_id"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
    timestamp: Mapped[datetime]


class RunMetricBlock(Base):
    """What a metric did in a block of consecutive steps: number and sum of its values, the least and the greatest, with their steps and
    times (ms since 1970). See runs/blocks.py for the levels."""

    __tablename__ = "run_metric_blocks"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    level: Mapped[int] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    count: Mapped[int]
    total: Mapped[float]
    low: Mapped[float]
    low_step: Mapped[int]
    low_at: Mapped[int]
    high: Mapped[float]
    high_step: Mapped[int]
    high_at: Mapped[int]


class RunAttempt(Base):
    """A finished attempt of an evaluation: one row, one try. `status`: success, failed, skipped."""

    __tablename__ = "run_attempts"
    follows = "run_id"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    row_index: Mapped[int] = mapped_column(primary_key=True)
    run_index: Mapped[int] = mapped_column(primary_key=True)
    rollout_id: Mapped[str]
    status: Mapped[str]
    reward: Mapped[float | None]
    tokens: Mapped[int | None]
    duration_ms: Mapped[float | None]
    error_type: Mapped[str | None]
    error_message: Mapped[str | None]
    trajectory_sha256: Mapped[str | None]
    finished_at: Mapped[datetime] = mapped_column(default=utc_now)


class RunSample(Base):
    """A training trajectory kept for people to read."""

    __tablename__ = "run_samples"
    follows = "run_id"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    row_index: Mapped[int] = mapped_column(primary_key=True)
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    rollout_id: Mapped[str]
    reward: Mapped[float | None]
    advantage: Mapped[float | None]
    blob_sha256: Mapped[str]


class RunArtifact(Base):
    """A file that an attempt wrote to its artifacts folder. `path` is relative and safe."""

    __tablename__ = "run_artifacts"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    row_index: Mapped[int] = mapped_column(primary_key=True)
    run_index: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    sha256: Mapped[str]


class RunSampleArtifact(Base):
    """A file that the rollout of a kept training sample wrote, as `RunArtifact`."""

    __tablename__ = "run_sample_artifacts"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    row_index: Mapped[int] = mapped_column(primary_key=True)
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    sha256: Mapped[str]


class RunBlob(Base):
    """A blob that a worker sent with secret values in it: `kept_sha256` is what was stored instead of `sent_sha256`."""

    __tablename__ = "run_blobs"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    sent_sha256: Mapped[str] = mapped_column(primary_key=True)
    kept_sha256: Mapped[str]
    kept_size: Mapped[int]


class RunExport(Base):
    """A snapshot made for download (`metrics.json`, `summary.jsonl`, `logs.txt`) of a run that may still grow."""

    __tablename__ = "run_exports"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class EvalImport(Identified, Base):
    """An evaluation made on somebody's own machine on its way here. `status`: uploading, finalized.

    `declaration` is what the client said about the run; `run_id` is the evaluation it became.
    """

    __tablename__ = "eval_imports"
    __table_args__ = (UniqueConstraint("workspace_id", "local_run_id"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"))
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    local_run_id: Mapped[str]
    manifest_digest: Mapped[str]
    status: Mapped[str] = mapped_column(default="uploading")
    declaration: Mapped[dict[str, Any]]
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    expires_at: Mapped[datetime]


class EvalImportFile(Base):
    """A declared file of an import. `state`: pending, uploaded; `upload_id` names its parts while they come in."""

    __tablename__ = "eval_import_files"
    import_id: Mapped[str] = mapped_column(ForeignKey("eval_imports.id"), primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    sha256: Mapped[str]
    upload_id: Mapped[str]
    state: Mapped[str] = mapped_column(default="pending")


class LogLine(Base):
    """A line of a run's or dataset's log; `sequence` orders the lines of all owners."""

    __tablename__ = "log_lines"
    follows = "owner_id"
    __table_args__ = (
        Index("ix_log_lines_owner", "owner_id", "sequence"),
        Index(
            "ix_log_lines_advice",
            "owner_id",
            "sequence",
            sqlite_where=text("step = 'advice'"),
            postgresql_where=text("step = 'advice'"),
        ),
        UniqueConstraint("owner_id", "event_id"),
    )
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    owner_id: Mapped[str]
    event_id: Mapped[str]
    timestamp: Mapped[datetime] = mapped_column(default=utc_now)
    level: Mapped[str] = mapped_column(default="info")
    step: Mapped[str] = mapped_column(default="")
    message: Mapped[str]
    details: Mapped[dict[str, Any] | None]
