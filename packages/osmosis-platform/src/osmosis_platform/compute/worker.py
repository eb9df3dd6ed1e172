"""The worker of a run: which command it is, what it is told, and what its end means."""

from __future__ import annotations

import os
import sys
from typing import Any

from osmosis_platform.adapters.shipped import trainer_python
from osmosis_platform.compute.plan import RunFolder, RunPlan
from osmosis_platform.settings import Settings

FINISHED, STOPPED, FAILED = 0, 3, 4
# Sections that steer the platform, not the worker.
_PLATFORM_KEYS = ("package_index",)


def worker_command(kind: str, settings: Settings) -> list[str]:
    """The command of a run's worker."""
    if kind == "eval":
        return [sys.executable, "-m", "osmosis_ai.eval.worker"]
    return [str(trainer_python(settings)), "-m", "osmosis_trainer", "train"]


def worker_env() -> dict[str, str]:
    """The platform's environment without its own settings; secrets come with the spec."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith(("OSMOSIS_", "_OSMOSIS_"))
    }
    return {
        **kept,
        "PYTHONUNBUFFERED": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "TOKENIZERS_PARALLELISM": "false",
    }


def worker_spec(
    plan: RunPlan,
    folder: RunFolder,
    *,
    api_url: str,
    run_token: str,
    rollout_url: str,
    rollout_instance_id: str,
    hosted: tuple[str, str] | None,
) -> dict[str, Any]:
    """The one line a worker reads from stdin. `hosted` is the inference server's address and key, where the run uses it."""
    config = {
        name: {key: value for key, value in section.items() if key not in _PLATFORM_KEYS}
        for name, section in plan.config.items()
    }
    spec: dict[str, Any] = {
        "kind": plan.kind,
        "run_id": plan.run_id,
        "run_name": plan.name,
        "api_url": api_url,
        "run_token": run_token,
        "work_dir": str(folder.work),
        "rollout_url": rollout_url,
        "rollout_instance_id": rollout_instance_id,
        "artifact_root": str(folder.artifacts),
        "dataset_path": str(folder.rows),
        "dataset_rows": plan.dataset_rows,
        "config": config,
    }
    if plan.kind == "train":
        assert plan.base_model is not None
        name, path = plan.base_model
        assert path is not None, "fetched before the worker starts"
        spec["base_model"] = {"name": name, "path": path}
        advanced = config.get("advanced", {})
        needed = {advanced.get(option) for option in ("tinker_key", "split_key")}
        spec["secrets"] = {name: value for name, value in plan.secrets.items() if name in needed}
    elif hosted is not None:
        base_url, key = hosted
        spec["policy"] = {
            "kind": "hosted",
            "base_url": f"{base_url}/v1",
            "api_key": key,
            "model": plan.hosted_model,
        }
    else:
        spec["policy"] = {"kind": "provider", "model": plan.model_path, "env": plan.rollout_env}
    return spec
