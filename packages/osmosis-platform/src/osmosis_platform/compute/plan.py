"""Everything a run needs to start, read from the database in one transaction and written into its folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_ai.environments.build import BuildOptions
from osmosis_ai.rollout.utils.remove_tree import remove_tree
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.adapters.service import served_name
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.errors import PlatformError
from osmosis_platform.evaluation.models import resolve_eval_model
from osmosis_platform.repositories.models import Repository
from osmosis_platform.runs import own_secrets
from osmosis_platform.runs.models import Run
from osmosis_platform.secrets.service import mark_used, resolve
from osmosis_platform.workspaces.models import Workspace


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The facts of one run. `base_model` is (name, folder), without folder while the model is not on this machine.

    `secrets` holds values and is never written anywhere.
    """

    run_id: str
    name: str
    kind: str
    config: dict[str, Any]
    model_path: str
    entrypoint: str
    rollout_name: str
    commit_sha: str
    repository: str
    rows_sha256: str
    dataset_rows: int
    options: BuildOptions
    base_model: tuple[str, str | None] | None
    hosted_model: str | None
    env: dict[str, str] = field(repr=False)
    secrets: dict[str, str] = field(repr=False)

    @property
    def rollout_env(self) -> dict[str, str]:
        """What the user put into the rollout's environment."""
        return {**self.env, **self.secrets}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run below `data/runs`. `work` outlives restarts; the rest can be made again."""

    root: Path

    @property
    def code(self) -> Path:
        """The rollout at its commit."""
        return self.root / "code"

    @property
    def artifacts(self) -> Path:
        """Where rollouts write their files."""
        return self.root / "artifacts"

    @property
    def rows(self) -> Path:
        """The dataset's rows."""
        return self.root / "rows.parquet"

    @property
    def work(self) -> Path:
        """The worker's own folder."""
        return self.root / "work"

    def clean(self, *, keep_work: bool) -> None:
        """Remove what the run does not need any more."""
        if not keep_work:
            remove_tree(self.root)
            return
        for folder in (self.code, self.artifacts):
            remove_tree(folder)
        self.rows.unlink(missing_ok=True)


def run_folder(platform: Platform, run_id: str) -> RunFolder:
    """The folder of a run, existing or not."""
    return RunFolder(platform.settings.data_dir.resolve() / "runs" / run_id)


def read_plan(session: Session, platform: Platform, run: Run) -> RunPlan:
    """Read the plan; raises RunFailed when something the run needs is gone."""
    try:
        return _read(session, platform, run)
    except RunFailed:
        raise
    except PlatformError as error:
        raise RunFailed(error.message, error.code.lower()) from error


def _read(session: Session, platform: Platform, run: Run) -> RunPlan:
    dataset = session.get(Dataset, run.dataset_id) if run.dataset_id else None
    if dataset is None:
        raise RunFailed("The dataset of the run is gone.", "dataset_missing")
    if dataset.rows_sha256 is None or not platform.blobs.exists(dataset.rows_sha256):
        raise RunFailed(f"The rows of dataset {dataset.name} are not stored any more.", "dataset_missing")
    workspace = session.get_one(Workspace, run.workspace_id)
    repository = session.scalar(select(Repository).where(Repository.workspace_id == run.workspace_id))
    if repository is None:
        raise RunFailed("The workspace's repository is not connected any more.", "repository_missing")
    given = own_secrets.values(session, platform.keys, run)
    stored = [name for name in run.secret_names if name not in given]
    resolved = resolve(session, platform.keys, run.workspace_id, run.creator_id, stored)
    used = {name: label for name, (_value, label) in resolved.items()}
    mark_used(session, run.workspace_id, run.creator_id, used)
    base = session.get(BaseModel, run.base_model_id) if run.base_model_id else None
    return RunPlan(
        run_id=run.id,
        name=run.name,
        kind=run.kind,
        config=run.config,
        model_path=run.model_path,
        entrypoint=run.entrypoint,
        rollout_name=run.rollout_name,
        commit_sha=run.commit_sha,
        repository=repository.full_name,
        rows_sha256=dataset.rows_sha256,
        dataset_rows=dataset.row_count or 0,
        options=BuildOptions(
            index=platform.settings.package_index,
            sdk_from_index=workspace.sdk_from_index
            or bool(run.config.get("advanced", {}).get("package_index")),
        ),
        base_model=(base.name, base.path) if base else None,
        hosted_model=_hosted_model(session, run) if run.kind == "eval" else None,
        env=dict(run.env),
        secrets={**{name: value for name, (value, _label) in resolved.items()}, **given},
    )


def _hosted_model(session: Session, run: Run) -> str | None:
    """The name of an evaluation's model inside the inference server; None for a provider's model."""
    model = resolve_eval_model(session, run.workspace_id, run.model_path)
    if model.base is None:
        return None
    return f"{model.base.name}:{served_name(model.lora)}" if model.lora else model.base.name


def materialise(platform: Platform, plan: RunPlan, folder: RunFolder) -> None:
    """Write rows and code into the run's folder; what an earlier start wrote is used again."""
    folder.work.mkdir(parents=True, exist_ok=True)
    folder.artifacts.mkdir(exist_ok=True)
    if not folder.rows.exists():
        source = platform.blobs.path(plan.rows_sha256)
        try:
            os.link(source, folder.rows)
        except OSError:  # another file system
            staging = folder.rows.with_suffix(".partial")
            shutil.copyfile(source, staging)
            staging.replace(folder.rows)
    # The rollout may write into its folder, so every start gets it fresh.
    remove_tree(folder.code)
    try:
        platform.git.export(plan.repository, plan.commit_sha, f"rollouts/{plan.rollout_name}", folder.code)
    except PlatformError as error:
        raise RunFailed(error.message, "code_missing") from error
