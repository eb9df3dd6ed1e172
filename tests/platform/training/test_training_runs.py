"""Training runs through the API, and what their workers report."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tarfile
import uuid
from typing import Any

import httpx
import pytest

from osmosis_platform.context import Platform
from osmosis_platform.jobs.models import Job
from osmosis_platform.runs import tokens
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.status import transition

NOW = "2026-11-01T00:00:00Z"


@pytest.fixture
def api(client: httpx.Client, workshop: Any) -> Any:
    def call(method: str, path: str, **kwargs: Any) -> httpx.Response:
        return client.request(method, f"/api/cli/{path}", headers=workshop.town.ada.scoped(), **kwargs)

    return call


@pytest.fixture
def run(api: Any, workshop: Any) -> dict[str, Any]:
    answer = api(
        "POST", "training-runs", json=workshop.body("tiny/model", training_config={"total_epochs": 2})
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.fixture
def worker(client: httpx.Client, platform: Platform, run: dict[str, Any]) -> Any:
    with platform.database.write() as session:
        row = session.get_one(Run, run["id"])
        transition(row, "running")
        token = tokens.issue(row)

    def call(method: str, path: str, **kwargs: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return client.request(method, f"/api/runs/{run['id']}/{path}", headers=headers, **kwargs)

    return call


def send(worker: Any, *events: dict[str, Any]) -> httpx.Response:
    return worker("POST", "events", json={"events": list(events)})


def test_submit_makes_a_pending_run_and_its_job(
    run: dict[str, Any], api: Any, platform: Platform, workshop: Any
) -> None:
    assert run["status"] == "pending"
    assert len(run["name"].split("-")) == 2
    assert run["platform_url"].endswith(f"/acme/training/{run['id']}")
    with platform.database.read() as session:
        job = session.query(Job).one()
        assert (job.queue, job.payload) == ("trainings", {"run_id": run["id"]})
    detail = api("GET", f"training-runs/{run['name']}").json()
    assert detail["commit_sha"] == workshop.commit_sha
    assert detail["branch"] == "main"
    assert detail["config"]["training"]["total_epochs"] == 2
    assert detail["config"]["training"]["rollout_batch_size"] == 32, "defaults are filled in"
    assert detail["model"] == {"id": workshop.base_model_id, "name": "tiny/model"}
    item = api("GET", "training-runs").json()["training_runs"][0]
    assert item["model"]["model_name"] == "tiny/model"
    assert item["dataset"] == {"id": workshop.dataset_id, "file_name": "sums"}


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"dataset": "nope"}, 404, "Dataset not found: nope"),
        ({"rollout": "nope"}, 404, "Rollout not found: nope"),
        ({"entrypoint": "other.py"}, 404, "Entrypoint not found"),
        ({"model_path": "no-such-model"}, 404, "Model not found: no-such-model"),
        ({"model_path": "/no/such/folder"}, 404, "/no/such/folder has no config.json"),
        ({"branch": "gone"}, 404, "branch gone was not found"),
        ({"commit_sha": "1234567"}, 404, "commit 1234567 was not found"),
    ],
)
def test_a_submit_that_names_what_is_not_there(
    api: Any, workshop: Any, change: dict[str, str], status: int, text: str
) -> None:
    body = workshop.body("tiny/model")
    body["experiment_config"].update(change)
    answer = api("POST", "training-runs", json=body)
    assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text
    assert api("GET", "training-runs").json()["total_count"] == 0


def test_config_problems_are_told_all_at_once(api: Any, workshop: Any) -> None:
    body = workshop.body("tiny/model", training_config={"lrr": 1, "total_epochs": 0})
    answer = api("POST", "training-runs", json=body)
    assert answer.status_code == 400
    issues = {issue["key"]: issue for issue in answer.json()["issues"]}
    assert issues["training.lrr"]["key_correction"] == "training.lr"
    assert "training.total_epochs" in issues


def test_missing_secrets_end_the_sentence(api: Any, workshop: Any) -> None:
    body = workshop.body("tiny/model", secrets={"required": ["A_KEY", "B_KEY"]})
    answer = api("POST", "training-runs", json=body)
    assert answer.status_code == 404
    assert answer.json()["error"].endswith("Secret(s) not found: A_KEY, B_KEY")


@pytest.mark.usefixtures("only_sqlite")
def test_provided_secrets_are_never_readable(api: Any, workshop: Any, platform: Platform) -> None:
    body = workshop.body(
        "tiny/model", secrets={"required": ["A_KEY"], "provided": {"A_KEY": "hush-hush-value"}}
    )
    run = api("POST", "training-runs", json=body).json()
    assert "hush-hush-value" not in api("GET", f"training-runs/{run['id']}").text
    platform.database.engine.dispose()
    content = b"".join(path.read_bytes() for path in platform.settings.data_dir.glob("osmosis.sqlite3*"))
    assert b"hush-hush-value" not in content
    assert b"A_KEY" in content


def test_other_workspaces_see_nothing(client: httpx.Client, run: dict[str, Any], workshop: Any) -> None:
    eve = workshop.town.eve.scoped("other")
    assert client.get(f"/api/cli/training-runs/{run['id']}", headers=eve).status_code == 404
    assert client.post(f"/api/cli/training-runs/{run['id']}/stop", headers=eve).status_code == 404
    assert client.get("/api/cli/training-runs", headers=eve).json()["total_count"] == 0


def test_a_waiting_run_stops_at_once_and_stopping_repeats(
    api: Any, run: dict[str, Any], platform: Platform
) -> None:
    assert api("POST", f"training-runs/{run['name']}/stop", json={}).json()["status"] == "stopped"
    assert api("POST", f"training-runs/{run['name']}/stop", json={}).status_code == 200
    assert api("GET", f"training-runs/{run['id']}").json()["training_run"]["status"] == "stopped"
    with platform.database.read() as session:
        assert session.query(Job).one().status == "cancelled"


def test_events_are_one_transaction_and_repeat_without_change(
    api: Any, worker: Any, run: dict[str, Any]
) -> None:
    log_id = str(uuid.uuid4())
    events = [
        {
            "type": "log",
            "id": log_id,
            "timestamp": NOW,
            "level": "info",
            "step": "train",
            "message": "step 1",
        },
        {"type": "progress", "current_step": 1, "total_steps": 4, "phase": "training"},
        {
            "type": "metrics",
            "step": 1,
            "timestamp": NOW,
            "values": {"rollout/raw_reward": 0.25, "train/loss": -1.5},
        },
        {"type": "metrics", "step": 2, "timestamp": NOW, "values": {"rollout/raw_reward": 0.75}},
    ]
    for _ in range(2):
        assert send(worker, *events).json() == {"accepted": 4, "stop_requested": False}
    metrics = api("GET", f"training-runs/{run['id']}/metrics").json()
    assert metrics["training_run_id"] == run["id"]
    reward = next(series for series in metrics["metrics"] if series["metric_key"] == "rollout/raw_reward")
    assert [(point["step"], point["value"]) for point in reward["data_points"]] == [(1, 0.25), (2, 0.75)]
    assert reward["data_points"][0]["timestamp"] == 1793491200000
    summary = next(
        item for item in metrics["overview"]["metric_summaries"] if item["key"] == "rollout/raw_reward"
    )
    assert summary == {
        "key": "rollout/raw_reward", "title": "Training Reward", "initial": 0.25, "latest": 0.75, "delta": 0.5, "min": 0.25, "max": 0.75,
    }  # fmt: skip
    assert metrics["overview"]["latest_step"] == 1
    detail = api("GET", f"training-runs/{run['id']}").json()["training_run"]
    assert (detail["reward"], detail["total_steps"]) == (0.75, 4)
    logs = api("GET", f"training-runs/{run['id']}/logs").json()["logs"]
    assert [line["message"] for line in logs] == ["step 1"]


def test_one_bad_event_keeps_all_of_its_call_out(api: Any, worker: Any, run: dict[str, Any]) -> None:
    good = {"type": "metrics", "step": 1, "timestamp": NOW, "values": {"a": 1.0}}
    for bad in (
        {"type": "metrics", "step": 1, "timestamp": NOW, "values": {"a": float("nan")}},
        {"type": "metrics", "step": 1, "timestamp": NOW, "values": {"a": float("inf")}},
        {"type": "log", "id": "1", "timestamp": NOW, "message": "x", "details": {"deep": [float("nan")]}},
        {"type": "log", "id": "1", "timestamp": "2026-11-01T00:00:00", "message": "no zone"},
        {"type": "checkpoint", "step": 1, "blob": "0" * 64, "path": "/x", "final": False},
        {"type": "strange"},
    ):
        answer = worker("POST", "events", content=json.dumps({"events": [good, bad]}))
        assert answer.status_code == 400, (bad, answer.text)
    assert api("GET", f"training-runs/{run['id']}/metrics").json()["metrics"] == []


def test_blobs_are_checked_against_their_hash(worker: Any, platform: Platform) -> None:
    content = b"x" * 100_000
    sha = hashlib.sha256(content).hexdigest()
    assert worker("PUT", f"blobs/{'0' * 64}", content=content).status_code == 400
    for _ in range(2):
        assert worker("PUT", f"blobs/{sha}", content=content).status_code == 201
    assert platform.blobs.read_bytes(sha) == content


def test_only_the_newest_token_of_a_live_run_counts(
    worker: Any, platform: Platform, run: dict[str, Any]
) -> None:
    assert send(worker).status_code == 200
    with platform.database.write() as session:
        tokens.issue(session.get_one(Run, run["id"]))
    assert send(worker).status_code == 401
    assert worker("PUT", f"blobs/{'0' * 64}", content=b"").status_code == 401
    assert worker("GET", "attempts").status_code == 401


def test_a_stop_reaches_the_worker(api: Any, worker: Any, run: dict[str, Any]) -> None:
    assert api("POST", f"training-runs/{run['id']}/stop", json={}).json()["status"] == "stopping"
    assert send(worker).json()["stop_requested"] is True
    assert api("GET", f"training-runs/{run['id']}").json()["training_run"]["status"] == "running"


def adapter_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("adapter_config.json", b"{}"), ("adapter_model.safetensors", b"\0" * 10)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_checkpoint_becomes_a_lora_model(
    api: Any, worker: Any, run: dict[str, Any], platform: Platform
) -> None:
    content = adapter_tar()
    sha = hashlib.sha256(content).hexdigest()
    worker("PUT", f"blobs/{sha}", content=content)
    event = {"type": "checkpoint", "step": 20, "reward": 0.5, "blob": sha, "path": "/tmp/x", "final": True}
    for _ in range(2):
        assert send(worker, event).status_code == 200
    found = api("GET", f"training-runs/{run['id']}/checkpoints").json()
    assert found["training_run_id"] == run["id"]
    (checkpoint,) = found["checkpoints"]
    name = f"{run['name']}-step-20"
    assert (checkpoint["checkpoint_name"], checkpoint["checkpoint_step"]) == (name, 20)
    model = api("GET", f"models/{name}").json()
    assert model["inference_model"] == f"tiny/model:{name}"
    assert model["deployment_status"] is None


def test_the_checkpoint_with_the_best_validation_reward_is_marked(
    api: Any, worker: Any, run: dict[str, Any]
) -> None:
    content = adapter_tar()
    sha = hashlib.sha256(content).hexdigest()
    worker("PUT", f"blobs/{sha}", content=content)
    # Step 7 was measured better than any, but has no checkpoint; 40 was not measured.
    for step, value in ((7, 0.9), (10, 0.5), (20, 0.7), (30, 0.7)):
        values = {"eval/validation/reward": value, "rollout/raw_reward": 1.0}
        send(worker, {"type": "metrics", "step": step, "timestamp": "2026-01-01T00:00:00Z", "values": values})
    for step in (10, 20, 30, 40):
        send(worker, {"type": "checkpoint", "step": step, "reward": 0.1, "blob": sha, "final": step == 40})
    found = api("GET", f"training-runs/{run['id']}/checkpoints").json()["checkpoints"]
    assert [(c["checkpoint_step"], c["validation_reward"], c["best"]) for c in found] == [
        (10, 0.5, False),
        (20, 0.7, True),
        (30, 0.7, False),
        (40, None, False),
    ]


def test_a_full_disk_is_told(worker: Any, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: Any, **_kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(platform.blobs), "writer", full)
    content = b"x"
    answer = worker("PUT", f"blobs/{hashlib.sha256(content).hexdigest()}", content=content)
    assert (answer.status_code, answer.json()["code"]) == (507, "DISK_FULL")
