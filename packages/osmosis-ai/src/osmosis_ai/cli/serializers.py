"""The keys of things in JSON output. Scripts rely on exactly these."""

from typing import Any

Thing = dict[str, Any]

_DATASET = [
    "id",
    "file_name",
    "file_size",
    "status",
    "file_format",
    "original_file_format",
    "row_count",
    "original_file_size",
    "creator_name",
    "created_at",
    "updated_at",
]
_SECRET = ["id", "name", "scope", "created_at", "updated_at", "creator_name", "updater_name"]
_BASE_MODEL = ["id", "model_name", "base_model", "creator_name", "created_at", "updated_at"]
_LORA_MODEL = ["id", "model_name", "base_model", "training_run_name", "checkpoint_step", "reward"]
_DEPLOYMENT = ["deployment_status", "deployed_at", "deployed_by"]
_CHECKPOINT = ["id", "checkpoint_name", "checkpoint_step", "status", "created_at"]
_BENCHMARK = [
    "id",
    "name",
    "key",
    "description",
    "source_type",
    "source_ref",
    "source_url",
    "task_count",
    "category_count",
    "task_sets",
    "sync_status",
    "synced_task_count",
    "sync_error",
    "platform_url",
]
_BENCHMARK_RUNS = ["run_count", "running_count", "last_run_at", "last_run_status", "last_run_name"]
_BENCHMARK_NEEDS = [
    "runner_family",
    "supports_harness",
    "requires_harness",
    "default_harness",
    "requires_judge_model",
    "judge_model_default",
]
_DIFFICULTIES = ("easy", "medium", "hard")
_BENCHMARK_RUN = [
    "id",
    "name",
    "status",
    "benchmark_id",
    "benchmark_name",
    "agent_count",
    "best_pass_at_1",
    "ingested_results",
    "expected_results",
]
_PEOPLE_AND_TIMES = ["creator_name", "creator_email", "created_at", "started_at", "completed_at"]


def pick(thing: Thing, keys: list[str]) -> Thing:
    """These keys; a missing one is None."""
    return {key: thing.get(key) for key in keys}


def dataset(thing: Thing) -> Thing:
    """A dataset."""
    return pick(thing, _DATASET) | _if_any(thing, "platform_url")


def secret(thing: Thing) -> Thing:
    """A secret's name and scope; the wire word ``user`` is shown as ``personal``. Never a value."""
    shown = pick(thing, _SECRET)
    return shown | {"scope": "personal" if shown["scope"] == "user" else shown["scope"]}


def base_model(thing: Thing) -> Thing:
    """A base model."""
    return pick(thing, _BASE_MODEL)


def lora_model(thing: Thing) -> Thing:
    """A LoRA model; deployment keys only when the platform sent them."""
    deployment = pick(thing, _DEPLOYMENT) if "deployment_status" in thing else {}
    return pick(thing, _LORA_MODEL) | deployment | {"created_at": thing.get("created_at")}


def checkpoint(thing: Thing) -> Thing:
    """A checkpoint of a training run."""
    return pick(thing, _CHECKPOINT)


def training_run(run: Thing, model: Thing | None, data: Thing | None, rollout: Thing | None) -> Thing:
    """A training run. Lists and details name model and dataset by different keys; both are read."""
    shown = pick(run, ["id", "name", "status"])
    shown |= {"model_id": (model or {}).get("id"), "model_name": name_of(model)}
    shown |= {"dataset_id": (data or {}).get("id"), "dataset_name": name_of(data)}
    shown |= {"rollout_id": (rollout or {}).get("id"), "rollout_name": name_of(rollout)}
    shown |= pick(run, _PEOPLE_AND_TIMES) | _if_any(run, "platform_url")
    for key in ("current_step", "total_steps", "reward"):
        shown |= {key: run[key]} if _number(run.get(key)) else {}
    return shown | _if_any(run, "error") | _if_any(run, "error_type")


def eval_run(run: Thing) -> Thing:
    """An evaluation run of a list."""
    shown = pick(run, ["id", "name", "status", "created_at", "started_at", "completed_at"])
    shown |= {key: name_of(run.get(key)) for key in ("model", "dataset", "rollout")}
    shown |= pick(run, ["creator_name", "creator_email"])
    for key in ("results", "config", "platform_url", "error", "error_type"):
        shown |= _if_any(run, key)
    return shown


def benchmark(thing: Thing) -> Thing:
    """A benchmark of a list; its ``key`` is the source's own name for it."""
    return _benchmark(thing) | pick(thing, [*_BENCHMARK_RUNS, "creator_name"])


def benchmark_detail(thing: Thing) -> Thing:
    """A benchmark with what it needs and its tasks."""
    shown = _benchmark(thing) | pick(thing, ["creator_name", *_BENCHMARK_NEEDS])
    shown["required_secret_names"] = thing.get("required_secret_names") or []
    shown["pass_threshold"] = thing.get("pass_threshold")
    shown["categories"] = [pick(item, ["name", "task_count"]) for item in thing.get("categories") or []]
    shown["tasks"] = [_task(item) for item in thing.get("tasks") or []]
    return shown | pick(thing, ["unavailable_tasks"])


def _task(item: Thing) -> Thing:
    shown = pick(item, ["name", "category", "difficulty"])
    return shown if shown["difficulty"] in _DIFFICULTIES else {**shown, "difficulty": None}


def benchmark_run(run: Thing) -> Thing:
    """A benchmark run; the benchmark may come as an object of its own."""
    owner = run.get("benchmark") or {}
    aliases = {
        "name": run.get("benchmark_run_name"),
        "benchmark_id": owner.get("id"),
        "benchmark_name": owner.get("name"),
    }
    shown = pick(run, [*_BENCHMARK_RUN, "creator_name", "creator_email"])
    shown |= pick(run, ["created_at", "started_at", "completed_at"])
    shown |= {key: other for key, other in aliases.items() if shown[key] is None}
    return shown | _if_any(run, "platform_url")


def dev_server(thing: Thing) -> Thing:
    """A development rollout server."""
    return pick(thing, ["id", "name", "url", "status", "expires_at", "started_at"])


def _benchmark(thing: Thing) -> Thing:
    shown = pick(thing, _BENCHMARK) | {"key": thing.get("source_ref")}
    sets = thing.get("task_sets") or []
    shown["task_sets"] = [
        pick(item, ["name", "task_count"])
        | {"recommended": bool(item.get("recommended")), "description": item.get("description")}
        for item in sets
    ]
    return shown


def name_of(thing: Thing | None) -> str | None:
    """The name of a referenced thing, under whichever key it came."""
    for key in ("name", "file_name", "model_name"):
        if thing and thing.get(key):
            return str(thing[key])
    return None


def _if_any(thing: Thing, key: str) -> Thing:
    return {key: thing[key]} if thing.get(key) else {}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
