"""What a platform must get right or published clients break: one test for each point of that list."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import osmosis_platform
from osmosis_platform.storage.uploads import PART_SIZE

NOW = "2026-11-01T00:00:00Z"


def test_01_required_keys_of_every_client_are_there(musts: Any) -> None:
    upload = musts.ask(
        "POST", "datasets", json={"file_name": "a", "file_size": 9, "extension": "csv"}
    ).json()["upload"]
    assert isinstance(upload["s3_key"], str)
    for part in ("metrics", "checkpoints"):
        assert (
            musts.get(f"training-runs/{musts.training['id']}/{part}")["training_run_id"]
            == musts.training["id"]
        )
    assert musts.get(f"eval-runs/{musts.evaluation['id']}/metrics")["eval_run_id"] == musts.evaluation["id"]


def test_02_lists_and_objects_are_never_null(musts: Any) -> None:
    for path, key in (
        ("datasets", "datasets"), ("rollouts", "rollouts"), ("environment-secrets", "environment_secrets"), ("models/base", "models"),
        ("models/lora", "models"), ("eval-runs", "eval_runs"), ("training-runs", "training_runs"), ("benchmarks", "benchmarks"),
    ):  # fmt: skip
        assert isinstance(musts.get(path)[key], list), path
    waiting = musts.ask("POST", "training-runs", json=musts.workshop.body("tiny/model")).json()
    for run_id in (musts.training["id"], waiting["id"]):
        metrics = musts.get(f"training-runs/{run_id}/metrics")
        assert isinstance(metrics["overview"], dict)
        assert isinstance(metrics["overview"]["metric_summaries"], list)
        assert isinstance(metrics["metrics"], list)
        assert isinstance(metrics["status"], str)
        assert isinstance(musts.get(f"training-runs/{run_id}")["training_run"]["status"], str)
        assert isinstance(musts.get(f"training-runs/{run_id}/checkpoints")["checkpoints"], list)
    fresh = musts.ask("POST", "eval-runs", json=musts.workshop.body("tiny/model")).json()
    for run_id in (musts.evaluation["id"], fresh["id"]):
        assert isinstance(musts.get(f"eval-runs/{run_id}/metrics")["pass_at_k"], list)
        assert isinstance(musts.get(f"eval-runs/{run_id}/metrics")["overview"], dict)
    assert isinstance(musts.get("datasets/sums")["file_size"], int)
    assert isinstance(musts.get("models/lora")["max_active_deployments"], int)


def test_03_errors_are_one_sentence_and_a_code(musts: Any) -> None:
    for method, path, status, body in (
        ("POST", "datasets", 400, {"file_name": 3}),
        ("POST", "datasets", 400, [1]),
        ("POST", "eval-runs", 400, {"experiment_config": {}}),
        ("GET", "eval-runs?limit=51", 400, None),
        ("GET", "nothing/here", 404, None),
        ("PATCH", "datasets", 405, None),
        ("GET", "eval-runs/none", 404, None),
    ):
        for accept in ("*/*", "text/html"):
            headers = {**musts.town.ada.scoped(), "Accept": accept}
            answer = musts.ask(method, path, json=body, headers=headers)
            assert answer.status_code == status, (path, answer.text)
            assert answer.headers["content-type"] == "application/json"
            found = answer.json()
            assert isinstance(found["error"], str)
            assert found["error"] == found["message"]
            assert re.fullmatch("[A-Z_]+", found["code"])
            assert "detail" not in found


def test_04_only_bad_tokens_are_401_and_say_which(musts: Any) -> None:
    for headers, code in (
        ({}, "AUTH_HEADER_MISSING"),
        ({"Authorization": "Bearer "}, "TOKEN_MISSING"),
        ({"Authorization": "Bearer osm_wrong"}, "TOKEN_INVALID"),
    ):
        answer = musts.ask("GET", "eval-runs", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, code)
    for headers in (musts.town.eve.scoped(), musts.town.ada.headers):
        assert musts.ask("GET", "eval-runs", headers=headers).status_code in (400, 403)


def test_05_no_text_mentions_what_clients_take_for_billing() -> None:
    sources = Path(osmosis_platform.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if "subscription" in path.read_text("utf-8").lower()] == []


def test_06_the_first_poll_comes_at_once_and_pending_is_400(musts: Any) -> None:
    started = musts.client.post("/api/cli/device/authorize", json={"deviceName": "laptop"}).json()
    assert all(isinstance(started[key], str) for key in ("device_code", "user_code", "verification_uri"))
    assert all(type(started[key]) is int for key in ("expires_in", "interval"))
    answer = musts.client.post("/api/cli/device/token", json={"device_code": started["device_code"]})
    assert (answer.status_code, answer.json()["error"]) == (400, "authorization_pending")


def test_07_a_tokens_end_has_an_offset_and_lies_ahead(musts: Any) -> None:
    expires_at = datetime.fromisoformat(musts.get("verify")["expires_at"])
    assert expires_at.tzinfo is not None
    assert expires_at > datetime.now(UTC)


@pytest.mark.parametrize("identity", ["no/where", "not an identity", "Acme/Agents/x"])
def test_08_verify_with_an_unknown_repository_is_200(musts: Any, identity: str) -> None:
    answer = musts.ask("GET", "verify", headers={**musts.town.ada.headers, "X-Osmosis-Git": identity})
    assert (answer.status_code, answer.json()["workspace"]) == (200, None)


def test_09_a_workspace_is_named_in_one_of_two_ways(musts: Any) -> None:
    who = musts.town.max.headers
    for headers in (
        {"X-Osmosis-Git": "acme/agents"},
        {"X-Osmosis-Git": "ACME/Agents"},
        {"X-Osmosis-Workspace": "acme"},
    ):
        assert musts.ask("GET", "rollouts", headers={**who, **headers}).status_code == 200
    both = {**who, "X-Osmosis-Git": "acme/agents", "X-Osmosis-Workspace": "acme"}
    answer = musts.ask("GET", "rollouts", headers=both)
    assert (answer.status_code, answer.json()["code"]) == (400, "WORKSPACE_SCOPE_HEADER_CONFLICT")


def test_10_offsets_grow_and_end(musts: Any) -> None:
    for number in range(4):
        body = {"name": f"KEY_{number}", "value": "v", "scope": "workspace"}
        assert musts.ask("POST", "environment-secrets", json=body).status_code == 200
    seen, offset, offsets = [], 0, []
    while offset is not None:
        page = musts.get(f"environment-secrets?limit=2&offset={offset}")
        seen += [item["name"] for item in page["environment_secrets"]]
        offsets.append(offset)
        offset = page["next_offset"]
    assert sorted(seen) == [f"KEY_{number}" for number in range(4)]
    assert offsets == [0, 2]
    assert musts.ask("GET", "datasets?limit=50").status_code == 200
    assert musts.ask("GET", "datasets/sums/logs?limit=200&direction=older").status_code == 200
    assert musts.ask("GET", "datasets/sums/logs?limit=201").status_code == 400


def test_11_paths_and_bodies_as_clients_send_them(musts: Any) -> None:
    json_type = {**musts.town.ada.scoped(), "Content-Type": "application/json"}
    assert (
        musts.ask("GET", "models/base/tiny%2Fmodel", headers=json_type).json()["model_name"] == "tiny/model"
    )
    for path in ("eval-runs/", "datasets/", "verify/"):
        answer = musts.ask("GET", path, headers=json_type, follow_redirects=False)
        assert answer.status_code == 404, path
    body = {"name": "NONE", "scope": "user"}
    answer = musts.ask("DELETE", "environment-secrets", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, "SECRET_NOT_FOUND")
    assert (
        musts.ask("POST", f"training-runs/{musts.training['id']}/stop", headers=json_type).status_code == 200
    )


def test_12_names_and_ids_are_both_taken(musts: Any) -> None:
    lora = musts.get("models/lora")["models"][0]
    dataset = musts.get("datasets/sums")
    for path, names in (
        ("eval-runs", (musts.evaluation["name"], musts.evaluation["id"])),
        ("training-runs", (musts.training["name"], musts.training["id"])),
        ("models", (lora["model_name"], lora["id"])),
        ("datasets", ("sums", dataset["id"])),
        ("models/base", ("tiny%2Fmodel", musts.workshop.base_model_id)),
    ):
        assert musts.get(f"{path}/{names[0]}") == musts.get(f"{path}/{names[1]}")


def test_13_lists_and_details_have_their_own_keys(musts: Any) -> None:
    (item,) = musts.get("training-runs")["training_runs"]
    assert (item["model"]["model_name"], item["dataset"]["file_name"]) == ("tiny/model", "sums")
    detail = musts.get(f"training-runs/{item['id']}")
    assert (detail["model"]["name"], detail["dataset"]["name"]) == ("tiny/model", "sums")
    (item,) = musts.get("eval-runs")["eval_runs"]
    assert (item["model"]["name"], item["dataset"]["name"]) == ("tiny/model", "sums")
    assert musts.get(f"eval-runs/{item['id']}")["config"]["model_path"] == "tiny/model"


def test_14_pass_at_k_is_a_map_here_and_a_list_there(musts: Any) -> None:
    path = f"eval-runs/{musts.evaluation['id']}"
    assert musts.get(path)["results"]["sampled_rows"] == 2
    assert musts.get(path)["results"]["reward_stats"]["pass_at_k"] == {"1": 0.25, "2": 0.5}
    assert musts.get(f"{path}/metrics")["pass_at_k"] == [{"k": 1, "value": 0.25}, {"k": 2, "value": 0.5}]


def test_15_signed_addresses(musts: Any) -> None:
    content = b"x" * 1000
    body = {"file_name": "up", "file_size": len(content), "extension": "jsonl"}
    created = musts.ask("POST", "datasets", json=body).json()
    address = created["upload"]["presigned_url"]
    assert address.startswith("http://127.0.0.1:")
    put = musts.client.put(address, content=content)
    assert put.status_code == 200
    assert put.headers["etag"].strip('"')
    assert musts.client.put(address, content=content[:-1]).status_code == 400, "another size"
    blob = musts.platform.blobs.put_bytes(content * 10)
    address = musts.platform.urls.download_url(blob.sha256, "file.csv")
    got = musts.client.get(address, headers={"Accept-Encoding": "gzip, deflate"})
    assert got.content == content * 10
    assert "content-encoding" not in got.headers
    assert got.headers["content-length"] == str(len(content) * 10)
    expired = musts.platform.urls.download_url(blob.sha256, "file.csv", expires_in=-1)
    assert musts.client.get(expired).status_code == 403
    assert musts.client.get(address.replace("name=file", "name=other")).status_code == 403


def test_16_parts_fit_the_file(musts: Any) -> None:
    for size in (PART_SIZE + 1, 3 * PART_SIZE, 5 * 1024**3):
        body = {"file_name": f"big-{size}", "file_size": size, "extension": "parquet"}
        plan = musts.ask("POST", "datasets", json=body).json()["upload"]
        parts, count = plan["presigned_urls"], plan["total_parts"]
        assert plan["method"] == "multipart"
        assert plan["part_size"] * (count - 1) < size <= plan["part_size"] * count
        assert [part["part_number"] for part in parts] == list(range(1, count + 1))
        assert sum(part["size"] for part in parts) == size
        assert {part["size"] for part in parts[:-1]} <= {plan["part_size"]}


def test_17_what_clients_repeat_changes_nothing(musts: Any) -> None:
    body = {"file_name": "again", "file_size": 3, "extension": "csv"}
    created = musts.ask("POST", "datasets", json=body).json()
    musts.client.put(created["upload"]["presigned_url"], content=b"abc")
    answers = [
        musts.ask("POST", f"datasets/{created['id']}/complete", json={"file_extension": "csv"})
        for _ in range(3)
    ]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert {answer.json()["status"] for answer in answers} == {"pending"}
    done = {"organizationId": musts.town.acme.id, "intent": "eval"}
    for _ in range(2):
        assert musts.ask("POST", "quickstart", json=done, headers=musts.town.ada.headers).status_code == 200


def test_18_a_name_clash_names_the_dataset(musts: Any) -> None:
    body = {"file_name": "sums", "file_size": 3, "extension": "csv"}
    answer = musts.ask("POST", "datasets", json=body)
    assert (answer.status_code, answer.json()["existing_dataset_id"]) == (409, musts.workshop.dataset_id)
    body["overwrite_dataset_id"] = musts.workshop.dataset_id
    assert musts.ask("POST", "datasets", json=body).status_code == 201


@pytest.mark.parametrize("room", ["eval-runs", "training-runs"])
def test_19_missing_secrets_end_a_line(musts: Any, room: str) -> None:
    body = musts.workshop.body("tiny/model", secrets={"required": ["B_KEY", "A_KEY"]})
    answer = musts.ask("POST", room, json=body)
    assert answer.status_code == 404
    assert answer.json()["error"].splitlines()[-1].endswith("Secret(s) not found: B_KEY, A_KEY")


def test_20_personal_secrets_are_called_user(musts: Any) -> None:
    body = {"name": "MINE", "value": "v", "scope": "user"}
    assert musts.ask("POST", "environment-secrets", json=body).json()["scope"] == "user"
    assert musts.ask("POST", "environment-secrets", json={**body, "scope": "personal"}).status_code == 400
    page = musts.get("environment-secrets?scope=all&limit=50&offset=0")
    assert [(item["name"], item["scope"]) for item in page["environment_secrets"]] == [("MINE", "user")]


def test_21_a_datasets_facts_are_of_what_is_served(musts: Any) -> None:
    body = {"file_name": "facts", "file_size": 5, "extension": "jsonl"}
    created = musts.ask("POST", "datasets", json=body).json()
    assert (created["file_size"], created["file_format"]) == (5, "jsonl")
    replaced = {**body, "overwrite_dataset_id": created["id"], "file_size": 6}
    again = musts.ask("POST", "datasets", json=replaced).json()
    assert (again["file_size"], again["updated_at"] > created["updated_at"]) == (6, True)


def test_22_manifest_paths_keep_to_the_layout(musts: Any) -> None:
    path = f"eval-runs/{musts.evaluation['id']}/samples/manifest"
    files = musts.get(f"{path}?types=metrics,trajectories,artifacts,logs")["files"]
    paths = [file["path"] for file in files]
    assert len(set(paths)) == len(paths)
    layout = re.compile(
        r"metrics\.json|summary\.jsonl|logs\.txt|trajectories/row_\d+_run_\d+\.json|artifacts/row_\d+_run_\d+/.+"
    )
    assert [found for found in paths if not layout.fullmatch(found)] == []
    assert "artifacts/row_0_run_0/out.txt" in paths
    assert "artifacts/row_0_run_0/manifest.json" not in paths
    assert [file["path"] for file in musts.get(f"{path}?types=metrics")["files"]] == ["metrics.json"]


def test_23_deployment_keys_are_there_only_where_models_are_served(musts: Any) -> None:
    page = musts.get("models/lora")
    assert page["models"][0]["deployment_status"] is None
    assert page["active_deployments"] == 0
    name = page["models"][0]["model_name"]
    musts.platform.settings = musts.platform.settings.model_copy(update={"serve_models": False})
    page = musts.get("models/lora")
    assert not {"active_deployments", "max_active_deployments"} & page.keys()
    for shown in (page["models"][0], musts.get(f"models/{name}")):
        assert not {"deployment_status", "deployed_at", "deployed_by", "inference_model"} & shown.keys()
    answer = musts.ask("POST", f"models/{name}/deploy", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_SERVED")


def test_24_links_lead_to_pages_of_the_workspace(musts: Any) -> None:
    lora = musts.get("models/lora")["models"][0]["model_name"]
    urls = [
        musts.training["platform_url"],
        musts.evaluation["platform_url"],
        musts.get("training-runs")["training_runs"][0]["platform_url"],
        musts.get(f"eval-runs/{musts.evaluation['id']}")["eval_run"]["platform_url"],
        musts.get("datasets/sums")["platform_url"],
        musts.get(f"models/{lora}")["platform_url"],
        musts.get("models/base/tiny%2Fmodel")["platform_url"],
        musts.get("environment-secrets")["platform_url"],
    ]
    assert [url for url in urls if not re.match(r"http://127\.0\.0\.1:8400/acme/[a-z]+", url)] == []


def test_25_version_headers_come_in_pairs(musts: Any) -> None:
    for headers in ({}, {"X-Osmosis-CLI-Version": "0.3.0rc1"}):
        answer = musts.ask("GET", "rollouts", headers={**musts.town.ada.scoped(), **headers})
        assert ("x-osmosis-version-status" in answer.headers) == (
            "x-osmosis-version-message" in answer.headers
        )


def numbers(value: Any) -> Iterator[float]:
    """Every number inside a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield value


STATUSES = {
    "dataset": {"pending", "uploading", "processing", "uploaded", "error", "cancelled"},
    "training_run": {
        "pending",
        "queued",
        "running",
        "finished",
        "failed",
        "crashed",
        "stopped",
        "killed",
        "unknown",
    },
    "eval_run": {"pending", "running", "finished", "failed", "stopped"},
}


def test_26_numbers_are_finite_and_statuses_known(musts: Any) -> None:
    for path in (
        f"training-runs/{musts.training['id']}/metrics",
        f"eval-runs/{musts.evaluation['id']}/metrics",
        f"eval-runs/{musts.evaluation['id']}",
        "eval-runs",
        "training-runs",
    ):
        assert all(math.isfinite(number) for number in numbers(musts.get(path))), path
    musts.ask("POST", f"eval-runs/{musts.evaluation['id']}/stop", json={})
    assert musts.get(f"eval-runs/{musts.evaluation['id']}")["eval_run"]["status"] in STATUSES["eval_run"]
    assert (
        musts.get(f"training-runs/{musts.training['id']}")["training_run"]["status"]
        in STATUSES["training_run"]
    )
    assert musts.get("datasets/sums")["status"] in STATUSES["dataset"]


def test_27_an_import_echoes_what_was_declared(musts: Any) -> None:
    files = [
        {"path": path, "size": size, "sha256": hashlib.sha256(path.encode()).hexdigest()}
        for path, size in (("index.jsonl", 3), ("progress.json", 0))
    ]
    body = {
        "schema_version": 1, "local_run_id": "a" * 32, "manifest_digest": "b" * 64, "files": files, "reimport": False,
        "run": {
            "name": "mine", "started_at": NOW, "completed_at": NOW,
            "experiment_config": {
                "rollout": {"name": "echo", "source_digest": "c"}, "entrypoint": "main.py", "model_path": "openai/x",
                "dataset": {"name": "sums", "sha256": "d", "selected_source_rows": "0-9,12"},
            },
            "evaluation_config": {"n": 1, "pass_threshold": 0.5},
        },
        "schema_versions": {"rollout_protocol": "0.4", "dataset_normalization": 1, "state_schema": 1}, "provenance": {},
    }  # fmt: skip
    found = musts.ask("POST", "eval-runs/imports", json=body).json()
    assert (found["status"], found["expected_files"], found["uploaded_files"]) == ("uploading", 2, 0)
    assert found["files"] == [{**file, "state": "pending"} for file in files]
    assert musts.ask("POST", "eval-runs/imports", json=body).json()["session_id"] == found["session_id"]


def test_29_the_inference_name_is_what_the_endpoint_lists(musts: Any) -> None:
    lora = musts.get("models/lora")["models"][0]["model_name"]
    assert musts.get(f"models/{lora}")["inference_model"] == f"tiny/model:{lora}"
