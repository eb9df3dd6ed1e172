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
