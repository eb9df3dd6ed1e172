"""Evaluations made elsewhere are uploaded, checked, and become runs."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import httpx
import pytest

HEX = ["a" * 32, "b" * 32]


def line(row: int, **more: Any) -> dict[str, Any]:
    return {
        "row_index": row,
        "run_index": 0,
        "rollout_id": HEX[row],
        "status": "success",
        "duration_ms": 5,
        "reward": 1.0,
        **more,
    }


def contents() -> dict[str, bytes]:
    rows = [line(0, tokens=7, trajectory_filename="trajectory.json"), line(1, reward=0.0)]
    return {
        "index.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "progress.json": json.dumps({"total_runs": 2, "sampled_rows": 2, "total_dataset_rows": 40}).encode(),
        "logs.txt": b"started\nended\n",
        f"rollout_trials/{HEX[0]}/trajectory.json": b'{"steps": []}',
        f"rollout_trials/{HEX[0]}/artifacts/out/notes.txt": b"",
    }


def declaration(files: dict[str, bytes], **more: Any) -> dict[str, Any]:
    run = {
        "name": "local-heron",
        "started_at": "2026-11-01T00:00:00Z",
        "completed_at": "2026-11-01T00:01:00Z",
        "experiment_config": {
            "rollout": {"name": "echo", "source_digest": "x"},
            "entrypoint": "main.py",
            "model_path": "openai/gpt-5-mini",
            "dataset": {"name": "sums", "sha256": "y", "selected_source_rows": "0-1"},
        },
        "evaluation_config": {"n": 1, "pass_threshold": 0.5},
    }
    listed = [
        {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in sorted(files.items())
    ]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    return {
        "schema_version": 1, "local_run_id": "c" * 32, "manifest_digest": digest, "run": run,
        "schema_versions": {"rollout_protocol": "0.4"}, "provenance": {"config_path": "configs/eval/e.toml"},
        "files": listed, "reimport": False, **more,
    }  # fmt: skip


@pytest.fixture
def api(client: httpx.Client, workshop: Any) -> Any:
    def call(path: str, body: Any, status: int = 200) -> dict[str, Any]:
        answer = client.post(f"/api/cli/eval-runs/{path}", json=body, headers=workshop.town.ada.scoped())
        assert answer.status_code == status, answer.text
        return answer.json()

    return call


@pytest.fixture
def send(api: Any, client: httpx.Client) -> Any:
    def call(session: str, files: dict[str, bytes]) -> None:
        given = api(f"imports/{session}/uploads", {"paths": list(files)})["files"]
        for file in given:
            assert file["upload"]["method"] == "simple"
            url = "/" + file["upload"]["presigned_url"].split("/", 3)[3]
            assert client.put(url, content=files[file["path"]]).status_code == 200
            api(f"imports/{session}/uploads/complete", {"path": file["path"]})

    return call


def test_an_import_becomes_a_run(api: Any, send: Any, client: httpx.Client, workshop: Any) -> None:
    files = contents()
    body = declaration(files)
    started = api("imports", body)
    assert (started["status"], started["expected_files"], started["uploaded_files"]) == ("uploading", 5, 0)
    session = started["session_id"]
    assert api("imports", body)["session_id"] == session, "an interrupted upload is taken up"
    api(f"imports/{session}/finalize", {}, status=409)
    send(session, files)
    assert api(f"imports/{session}/uploads", {"paths": ["logs.txt"]})["files"] == []
    done = [api(f"imports/{session}/finalize", {}) for _ in range(2)]
    assert done[0] == done[1]
    assert (done[0]["status"], done[0]["uploaded_files"], done[0]["eval_run_name"]) == (
        "finalized",
        5,
        "local-heron",
    )
    headers = workshop.town.ada.scoped()
    detail = client.get(f"/api/cli/eval-runs/{done[0]['eval_run_id']}", headers=headers).json()
    assert detail["eval_run"]["status"] == "finished"
    assert (
        detail["results"]["score"],
        detail["results"]["passed"],
        detail["results"]["total_dataset_rows"],
    ) == (0.5, 1, 40)
    assert detail["dataset"] == {"id": workshop.dataset_id, "name": "sums"}
    query = "samples/manifest?types=trajectories,artifacts,logs"
    manifest = client.get(f"/api/cli/eval-runs/local-heron/{query}", headers=headers).json()
    assert [file["path"] for file in manifest["files"]] == [
        "summary.jsonl", "logs.txt", "trajectories/row_0_run_0.json", "artifacts/row_0_run_0/out/notes.txt",
    ]  # fmt: skip
    told = api("local-heron/retry", {}, status=409)
    assert told["local_run"] == {"config_path": "configs/eval/e.toml", "eval_run_name": "local-heron"}


def test_an_import_says_how_many_attempts_an_earlier_try_had_finished(
    api: Any, send: Any, client: httpx.Client, workshop: Any
) -> None:
    files = contents()
    files["index.jsonl"] = "".join(
        json.dumps(line(row, **({"resumed": True} if row else {}))) + "\n" for row in range(2)
    ).encode()
    session = api("imports", declaration(files))["session_id"]
    send(session, files)
    run_id = api(f"imports/{session}/finalize", {})["eval_run_id"]
    detail = client.get(f"/api/cli/eval-runs/{run_id}", headers=workshop.town.ada.scoped()).json()
    assert detail["results"]["resumed_count"] == 1


def test_other_content_of_an_imported_run_needs_to_be_asked_for(
    api: Any, send: Any, client: httpx.Client, workshop: Any
) -> None:
    files = contents()
    session = api("imports", declaration(files))["session_id"]
    send(session, files)
    run_id = api(f"imports/{session}/finalize", {})["eval_run_id"]
    files["index.jsonl"] = "".join(json.dumps(line(row)) + "\n" for row in range(2)).encode()
    api("imports", declaration(files), status=409)
    # Clients may keep the digest when they run failed attempts again.
    kept = {"manifest_digest": declaration(contents())["manifest_digest"]}
    api("imports", declaration(files, **kept), status=409)
    again = api("imports", declaration(files, reimport=True, **kept))
    assert again["uploaded_files"] == 4, "only what changed is sent"
    send(again["session_id"], files)
    assert api(f"imports/{session}/finalize", {})["eval_run_id"] == run_id
    detail = client.get(f"/api/cli/eval-runs/{run_id}", headers=workshop.town.ada.scoped()).json()
    assert detail["results"]["score"] == 1.0


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (json.dumps(line(0)) + "\n" + json.dumps(line(0)), "line 2: row 0 run 0 is there twice"),
        (json.dumps(line(0)).replace("1.0", "NaN"), "line 1"),
        (json.dumps(line(0, status="great")), "line 1: status"),
        ("not json", "line 1"),
    ],
)
def test_a_wrong_index_is_named_by_line(api: Any, send: Any, index: str, message: str) -> None:
    files = {**contents(), "index.jsonl": index.encode()}
    session = api("imports", declaration(files))["session_id"]
    send(session, files)
    assert message in api(f"imports/{session}/finalize", {}, status=400)["error"]


def test_bytes_that_differ_from_their_declaration_are_refused(api: Any, client: httpx.Client) -> None:
    files = contents()
    session = api("imports", declaration(files))["session_id"]
    upload = api(f"imports/{session}/uploads", {"paths": ["logs.txt"]})["files"][0]["upload"]
    client.put("/" + upload["presigned_url"].split("/", 3)[3], content=b"STARTED\nended\n")
    assert (
        "hashes to" in api(f"imports/{session}/uploads/complete", {"path": "logs.txt"}, status=400)["error"]
    )


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "rollout_trials/short/trajectory.json",
        "secrets.txt",
        f"rollout_trials/{HEX[0]}/artifacts/../x",
    ],
)
def test_undeclarable_paths(api: Any, path: str) -> None:
    api("imports", declaration({**contents(), path: b"x"}), status=400)


def test_others_cannot_see_an_import(api: Any, client: httpx.Client, workshop: Any) -> None:
    session = api("imports", copy.deepcopy(declaration(contents())))["session_id"]
    answer = client.post(
        f"/api/cli/eval-runs/imports/{session}/finalize", json={}, headers=workshop.town.eve.scoped("other")
    )
    assert answer.status_code == 404
