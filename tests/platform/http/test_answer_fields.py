"""Every field that clients read of an answer is there, with its type; those without `?` are never null.

Types: `s` text, `i` whole number, `n` number, `b` true or false, `t` moment with offset, `o` object, `l` list, `u` absolute address.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

PAGE = "total_count:i has_more:b next_offset:i?"
RUN = "id:s name:s status:s created_at:t started_at:t? completed_at:t? creator_name:s? creator_email:s? platform_url:u"
NAMED = "dataset:o dataset.id:s dataset.name:s rollout:o rollout.id:s rollout.name:s"
SOURCE = "entrypoint:s branch:s? commit_sha:s env_config:o resolved_secret_scopes:o is_internal_user:b"
DATASET = (
    "id:s file_name:s file_size:i status:s file_format:s original_file_format:s row_count:i? original_file_size:i? "
    "creator_name:s created_at:t updated_at:t platform_url:u is_internal_user:b"
)
LORA = (
    "id:s model_name:s base_model:s training_run_name:s checkpoint_step:i reward:n? created_at:t deployment_status:s? "
    "deployed_at:t? deployed_by:s?"
)
COUNTS = "graded:i passed:i failed:i skipped:i pass_rate:n pass_threshold:n"
STATS = "mean:n median:n std:n min:n max:n"


def within(path: str, fields: str) -> str:
    return " ".join(f"{path}.{field}" for field in fields.split())


ANSWERS = {
    "verify": "token_id:s expires_at:t user.id:s user.email:s user.name:s workspace:o?",
    "workspaces": "workspaces:l workspaces.0.id:s workspaces.0.name:s workspaces.0.connected_repo.repo_full_name:s",
    "quickstart?organizationId=ACME": "repo.connected:b repo.full_name:s billing_ready:b completed:b",
    "datasets": f"datasets:l {PAGE} {within('datasets.0', DATASET)}",
    "datasets/sums": f"{DATASET} data_preview:l?",
    "datasets/sums/logs": "logs:l next_cursor:s?",
    "rollouts": f"rollouts:l {PAGE} "
    + within(
        "rollouts.0",
        "id:s name:s description:s? repo_full_name:s last_synced_at:t last_synced_commit_sha:s created_at:t is_active:b",
    ),
    "environment-secrets": f"environment_secrets:l {PAGE} platform_url:u "
    + within(
        "environment_secrets.0", "id:s name:s scope:s created_at:t updated_at:t creator_name:s updater_name:s"
    ),
    "training-runs": f"training_runs:l {PAGE} "
    + within(
        "training_runs.0",
        f"{RUN} model.id:s model.model_name:s dataset.id:s dataset.file_name:s rollout.id:s rollout.name:s current_step:i "
        "total_steps:i reward:n",
    ),
    "training-runs/TRAINING": within(
        "training_run", f"{RUN} notes:s? current_step:i total_steps:i reward:n examples_processed_count:i"
    )
    + f" {NAMED} {SOURCE} model.id:s model.name:s config:o config.training:o",
    "training-runs/TRAINING/checkpoints": "training_run_id:s training_run_name:s checkpoints:l "
    + within("checkpoints.0", "id:s checkpoint_step:i checkpoint_name:s status:s created_at:t"),
    "training-runs/TRAINING/metrics": "training_run_id:s status:s metrics:l "
    + within(
        "overview",
        "duration_ms:i examples_processed_count:i latest_step:i total_steps:i metric_summaries:l metric_summaries.0.key:s "
        "metric_summaries.0.title:s metric_summaries.0.initial:n metric_summaries.0.latest:n metric_summaries.0.delta:n? "
        "metric_summaries.0.min:n metric_summaries.0.max:n",
    )
    + " "
    + within(
        "metrics.0",
        "metric_key:s title:s data_points:l data_points.0.step:i data_points.0.value:n data_points.0.timestamp:i",
    ),
    "training-runs/TRAINING/logs": "logs:l next_cursor:s?",
    "eval-runs": f"eval_runs:l {PAGE} {within('eval_runs.0', f'{RUN} {NAMED} model.name:s results:o config.n:i')}",
    "eval-runs/EVALUATION": f"{within('eval_run', RUN)} {NAMED} {SOURCE} config.model_path:s config.n:i config.pass_threshold:n "
    + within(
        "results",
        f"{COUNTS} total_runs:i sampled_rows:i score:n total_tokens:i total_dataset_rows:i resumed_count:i "
        f"{within('reward_stats', STATS)} reward_stats.pass_at_k:o",
    ),
    "eval-runs/EVALUATION/metrics": f"eval_run_id:s status:s {within('reward_stats', STATS)} pass_at_k.0.k:i pass_at_k.0.value:n "
    + within("overview", f"{COUNTS} duration_ms:i total_samples:i completed_samples:i tokens_used:i"),
    "eval-runs/EVALUATION/samples/manifest?types=metrics": "files.0.path:s files.0.size:i files.0.token:s totals:o",
    "models/base": f"models:l {PAGE} "
    + within("models.0", "id:s model_name:s base_model:s creator_name:s? created_at:t updated_at:t"),
    "models/base/tiny%2Fmodel": "id:s model_name:s namespace:s? hf_url:s? platform_url:u is_internal_user:b",
    "models/lora": f"models:l {PAGE} active_deployments:i max_active_deployments:i {within('models.0', LORA)}",
    "models/LORA": f"{LORA} hf_upload_status:s? hf_url:s? uploaded_by:s? inference_model:s platform_url:u is_internal_user:b",
    "benchmarks": f"benchmarks:l {PAGE}",
    "benchmark-runs": f"benchmark_runs:l {PAGE}",
    "dev-rollout-server": f"dev_rollout_servers:l {PAGE}",
}


def is_moment(value: Any) -> bool:
    return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None


def is_address(value: Any) -> bool:
    return (
        isinstance(value, str) and urlsplit(value).path.startswith("/acme/") and bool(urlsplit(value).netloc)
    )


TYPES = {
    "s": lambda value: isinstance(value, str),
    "i": lambda value: type(value) is int,
    "n": lambda value: type(value) in (int, float) and math.isfinite(value),
    "b": lambda value: isinstance(value, bool),
    "t": is_moment,
    "u": is_address,
    "o": lambda value: isinstance(value, dict),
    "l": lambda value: isinstance(value, list),
}


def problems(answer: Any, fields: str) -> list[str]:
    """The fields that are missing, null or of another type."""
    found = []
    for field in fields.split():
        path, _, kind = field.partition(":")
        value = answer
        try:
            for part in path.split("."):
                value = value[int(part) if part.isdecimal() else part]
        except (LookupError, TypeError):
            found.append(f"{path} is missing")
            continue
        if not (value is None and kind.endswith("?")) and not (value is not None and TYPES[kind[0]](value)):
            found.append(f"{path} is {value!r}")
    return found


def test_every_answer(musts: Any) -> None:
    secret = {"name": "A_KEY", "value": "v", "scope": "user"}
    assert (
        problems(musts.ask("POST", "environment-secrets", json=secret).json(), "id:s scope:s platform_url:u")
        == []
    )
    names = {
        "TRAINING": musts.training["id"],
        "EVALUATION": musts.evaluation["id"],
        "LORA": musts.get("models/lora")["models"][0]["model_name"],
        "ACME": musts.town.acme.id,
    }
    wrong = []
    for path, fields in ANSWERS.items():
        filled = path
        for name, value in names.items():
            filled = filled.replace(name, value)
        wrong += [f"{path}: {problem}" for problem in problems(musts.get(filled), fields)]
    assert wrong == []


@pytest.mark.parametrize("room", ["training-runs", "eval-runs"])
def test_submits_and_repeats(musts: Any, room: str) -> None:
    made = musts.ask("POST", room, json=musts.workshop.body("tiny/model")).json()
    assert problems(made, "id:s name:s status:s created_at:t platform_url:u") == []
    if room == "eval-runs":
        again = musts.ask("POST", f"{room}/{made['name']}/retry", json={}).json()
        fields = "id:s name:s status:s workflow_id:s retryable_samples:i platform_url:u"
        assert problems(again, fields) == []
    assert problems(musts.ask("POST", f"{room}/{made['name']}/stop", json={}).json(), "id:s status:s") == []
