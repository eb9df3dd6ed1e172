"""Evaluations through the API: submit, results, downloads, retry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import Any

import httpx
import pytest

from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.context import Platform
from osmosis_platform.runs import tokens
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.service import finish, job_key
from osmosis_platform.runs.status import transition


@pytest.fixture
def api(client: httpx.Client, workshop: Any) -> Any:
    def call(method: str, path: str, **kwargs: Any) -> httpx.Response:
        return client.request(method, f"/api/cli/{path}", headers=workshop.town.ada.scoped(), **kwargs)

    return call


@pytest.fixture
def submit(api: Any, workshop: Any) -> Any:
    def call(model: str = "tiny/model", **sections: Any) -> dict[str, Any]:
        sections.setdefault("evaluation_config", {"n": 2, "limit": 2, "pass_threshold": 0.5})
        answer = api("POST", "eval-runs", json=workshop.body(model, **sections))
        assert answer.status_code == 201, answer.text
        return answer.json()

    return call


@pytest.fixture
def worker(client: httpx.Client, platform: Platform) -> Any:
    """Start a run as the supervisor does, and speak for its worker."""

    def start(run_id: str) -> Any:
        with platform.database.write() as session:
            run = session.get_one(Run, run_id)
            transition(run, "running")
            headers = {"Authorization": f"Bearer {tokens.issue(run)}"}

        def call(method: str, path: str, **kwargs: Any) -> httpx.Response:
            return client.request(method, f"/api/runs/{run_id}/{path}", headers=headers, **kwargs)

        return call

    return start


def adapter_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("adapter_config.json")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    return buffer.getvalue()


def attempt(row: int, index: int, **more: Any) -> dict[str, Any]:
    event = {
        "type": "attempt",
        "row_index": row,
        "run_index": index,
        "rollout_id": f"r{row}x{index}",
        "status": "success",
    }
    return {**event, "reward": 1.0, "tokens": 10, "duration_ms": 2.5, **more}


def send(worker: Any, *events: dict[str, Any]) -> None:
    answer = worker("POST", "events", json={"events": list(events)})
    assert answer.status_code == 200, answer.text


def put(worker: Any, content: bytes) -> str:
    sha = hashlib.sha256(content).hexdigest()
    assert worker("PUT", f"blobs/{sha}", content=content).status_code == 201
    return sha


def end(platform: Platform, run_id: str, status: str = "finished") -> None:
    with platform.database.write() as session:
        run = session.get_one(Run, run_id)
        finish(session, run, status)
        job = platform.jobs.find(session, job_key(run))
        assert job is not None
        platform.jobs.request_cancel(session, job.id)


def test_results_grow_with_attempts_and_the_first_report_wins(submit: Any, worker: Any, api: Any) -> None:
    run = submit()
    tell = worker(run["id"])
    send(
        tell,
        {"type": "progress", "sampled_rows": 2, "total_runs": 4},
        attempt(0, 0),
        attempt(0, 1, reward=0.0),
    )
    send(
        tell,
        attempt(0, 0, reward=0.25, rollout_id="late"),
        attempt(1, 0, reward=0.6),
        attempt(1, 0, reward=0.1),
    )
    metrics = api("GET", f"eval-runs/{run['id']}/metrics").json()
    assert metrics["eval_run_id"] == run["id"]
    assert metrics["overview"]["total_samples"] == 4
    assert (metrics["overview"]["graded"], metrics["overview"]["passed"]) == (3, 2)
    assert metrics["overview"]["pass_rate"] == pytest.approx(2 / 3)
    assert metrics["reward_stats"]["mean"] == pytest.approx((1.0 + 0.0 + 0.6) / 3)
    detail = api("GET", f"eval-runs/{run['name']}").json()
    assert detail["results"]["score"] == pytest.approx(1.6 / 3)
    assert (detail["results"]["total_runs"], detail["results"]["sampled_rows"]) == (3, 2)
    assert detail["config"]["model_path"] == "tiny/model"
    assert detail["config"]["n"] == 2
    item = api("GET", "eval-runs").json()["eval_runs"][0]
    assert item["model"] == {"id": detail["model"]["id"], "name": "tiny/model"}
    assert item["results"]["total_runs"] == 3


def test_pass_at_k_is_a_map_in_results_and_a_list_in_metrics(submit: Any, worker: Any, api: Any) -> None:
    run = submit()
    send(
        worker(run["id"]),
        attempt(0, 0),
        attempt(0, 1, reward=0.0),
        attempt(1, 0, reward=0.0),
        attempt(1, 1, reward=0.0),
    )
    results = api("GET", f"eval-runs/{run['id']}").json()["results"]
    assert results["reward_stats"]["pass_at_k"] == {"1": 0.25, "2": 0.5}
    assert api("GET", f"eval-runs/{run['id']}/metrics").json()["pass_at_k"] == [
        {"k": 1, "value": 0.25},
        {"k": 2, "value": 0.5},
    ]


def test_a_worker_reads_back_what_is_finished_in_pages(submit: Any, worker: Any) -> None:
    tell = worker(submit()["id"])
    send(tell, *(attempt(row, index) for row in range(3) for index in range(2)))
    seen, after = [], -1
    while after is not None:
        page = tell("GET", "attempts", params={"after": after, "limit": 4}).json()
        seen += [(item["row_index"], item["run_index"]) for item in page["attempts"]]
        after = page["next_after"]
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_downloads_serve_the_bytes_of_the_manifest(
    submit: Any, worker: Any, api: Any, client: httpx.Client
) -> None:
    run = submit()
    tell = worker(run["id"])
    trajectory, artifact = put(tell, b'{"steps": []}'), put(tell, b"made by the agent")
    files = [
        {"path": "out/a b.txt", "size": 17, "sha256": artifact},
        {"path": "manifest.json", "size": 17, "sha256": artifact},
    ]
    send(tell, attempt(0, 0, trajectory_blob=trajectory, artifacts=files), attempt(1, 0, reward=0.0))
    send(tell, {"type": "log", "id": "1", "timestamp": "2026-11-01T00:00:00Z", "message": "a line"})
    found = api(
        "GET", f"eval-runs/{run['id']}/samples/manifest?types=metrics,trajectories,artifacts,logs"
    ).json()
    paths = {file["path"]: file for file in found["files"]}
    assert sorted(paths) == [
        "artifacts/row_0_run_0/out/a b.txt", "logs.txt", "metrics.json", "summary.jsonl", "trajectories/row_0_run_0.json",
    ]  # fmt: skip
    send(tell, attempt(1, 1))  # the run grows after the manifest was made
    items = [{"path": file["path"], "token": file["token"]} for file in found["files"]]
    answer = api("POST", f"eval-runs/{run['id']}/samples/download-urls", json={"items": items}).json()
    contents = {}
    for item in answer["items"]:
        path = item["url"].split("/", 3)[3]
        content = client.get(f"/{path}").content
        assert len(content) == paths[item["path"]]["size"], item["path"]
        contents[item["path"]] = content
    assert contents["artifacts/row_0_run_0/out/a b.txt"] == b"made by the agent"
    assert b"a line" in contents["logs.txt"]
    lines = [json.loads(line) for line in contents["summary.jsonl"].splitlines()]
    assert [(line["row_index"], line["run_index"], line["reward"]) for line in lines] == [
        (0, 0, 1.0),
        (1, 0, 0.0),
    ]
    document = json.loads(contents["metrics.json"])
    assert document["eval_run"]["name"] == run["name"]
    assert document["summary"]["passed"] == 1
    only = api("GET", f"eval-runs/{run['id']}/samples/manifest?types=trajectories,artifacts&rows=1-3").json()
    assert [file["path"] for file in only["files"]] == ["summary.jsonl"]
    wide = api("GET", f"eval-runs/{run['id']}/samples/manifest?types=trajectories&rows=0-99999999999").json()
    assert [file["path"] for file in wide["files"]] == ["summary.jsonl", "trajectories/row_0_run_0.json"]


def test_a_token_opens_no_blob_of_another_run(
    submit: Any, worker: Any, api: Any, workshop: Any, platform: Platform
) -> None:
    run, other = submit(), submit()
    secret = put(worker(other["id"]), b"somebody else's")
    for path in (
        "metrics.json",
        "trajectories/row_0_run_0.json",
        "artifacts/row_0_run_0/x",
        "../../etc/passwd",
    ):
        body = {"items": [{"path": path, "token": secret}]}
        answer = api("POST", f"eval-runs/{run['id']}/samples/download-urls", json=body)
        assert answer.status_code == 404, path


@pytest.mark.parametrize("query", ["types=nothing", "types=metrics&rows=3-1", "rows=a"])
def test_a_wrong_selection_is_refused(submit: Any, api: Any, query: str) -> None:
    assert api("GET", f"eval-runs/{submit()['id']}/samples/manifest?{query}").status_code == 400


def test_unsafe_artifact_paths_are_refused(submit: Any, worker: Any) -> None:
    tell = worker(submit()["id"])
    sha = put(tell, b"x")
    for path in ("../x", "/x", "a//b", "a/./b", "a\\b", "a/../b"):
        event = attempt(0, 0, artifacts=[{"path": path, "size": 1, "sha256": sha}])
        assert tell("POST", "events", json={"events": [event]}).status_code == 400, path


def test_retry_runs_failed_attempts_again_and_keeps_the_rest(
    submit: Any, worker: Any, api: Any, platform: Platform
) -> None:
    run = submit()
    failed = {"status": "failed", "reward": None, "error_type": "agent_error"}
    tell = worker(run["id"])
    send(tell, attempt(0, 0), attempt(0, 1, **failed), attempt(1, 0, **failed))
    end(platform, run["id"])
    answer = api("POST", f"eval-runs/{run['name']}/retry", json={}).json()
    assert (answer["status"], answer["retryable_samples"]) == ("pending", 2)
    assert answer["workflow_id"]
    again = api("POST", f"eval-runs/{run['name']}/retry", json={})
    assert (again.status_code, again.json()["workflow_id"]) == (200, answer["workflow_id"])
    page = worker(run["id"])("GET", "attempts").json()
    assert [(item["row_index"], item["run_index"]) for item in page["attempts"]] == [(0, 0)]


def test_retry_asks_for_the_values_given_at_submit(
    submit: Any, worker: Any, api: Any, platform: Platform
) -> None:
    run = submit(secrets={"required": ["A_KEY"], "provided": {"A_KEY": "first"}})
    worker(run["id"])
    end(platform, run["id"], "failed")
    answer = api("POST", f"eval-runs/{run['id']}/retry", json={})
    assert answer.status_code == 409
    assert answer.json()["run_secret_names"] == ["A_KEY"]
    for odd in ("a\0b", "x" * 65_537):
        refused = api("POST", f"eval-runs/{run['id']}/retry", json={"secrets": {"A_KEY": odd}})
        assert refused.status_code == 400
        assert odd not in refused.text
    assert (
        api("POST", f"eval-runs/{run['id']}/retry", json={"secrets": {"A_KEY": "second"}}).status_code == 200
    )


def test_nothing_to_retry(submit: Any, worker: Any, api: Any, platform: Platform) -> None:
    run = submit()
    send(worker(run["id"]), attempt(0, 0))
    end(platform, run["id"])
    assert api("POST", f"eval-runs/{run['id']}/retry", json={}).status_code == 409


def test_models_of_evaluations(api: Any, workshop: Any, platform: Platform, submit: Any) -> None:
    with platform.database.write() as session:
        trained = Run(
            workspace_id=workshop.town.acme.id, kind="train", name="calm-heron", creator_id=workshop.town.ada.user.id,
            rollout_name="echo", entrypoint="main.py", commit_sha="0" * 40, model_path="tiny/model",
            dataset_id=workshop.dataset_id, config={},
        )  # fmt: skip
        session.add(trained)
        session.flush()
        base = session.get_one(BaseModel, workshop.base_model_id)
        lora = LoraModel(
            workspace_id=workshop.town.acme.id, name="calm-heron-step-4", base_model_id=base.id, run_id=trained.id, step=4,
            blob_sha256=platform.blobs.put_bytes(adapter_tar()).sha256,
        )  # fmt: skip
        session.add(lora)
    submit("openai/gpt-5-mini")
    for model, status, text in (
        ("tiny/model:nope", 404, "no LoRA model nope"),
        ("tiny/model:calm-heron-step-4", 400, "osmosis model deploy calm-heron-step-4"),
        ("osmosis/unknown", 404, "Model not found"),
        ("justaname", 404, "Model not found"),
        ("nope/nope", 404, "no provider 'nope'"),
        ("opneai/gpt-5-mini", 404, "Did you mean 'openai'?"),
        ("openai/", 404, "Model not found"),
    ):
        answer = api("POST", "eval-runs", json=workshop.body(model))
        assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text
    assert api("POST", "models/calm-heron-step-4/deploy", json={}).json()["status"] == "active"
    submit("tiny/model:calm-heron-step-4")
