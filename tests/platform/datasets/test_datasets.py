"""Upload, processing, replacement and refusal, through the API as the CLI uses it."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.datasets import RowReader
from osmosis_platform.context import Platform
from osmosis_platform.datasets import service
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.jobs.models import Job
from osmosis_platform.storage import uploads

ROWS = [{"system_prompt": "s", "user_prompt": f"q {i}", "ground_truth": f"00{i}"} for i in range(12)]
CONTENT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


class Uploader:
    """Walks the upload calls."""

    def __init__(self, client: httpx.Client, platform: Platform, headers: dict[str, str]) -> None:
        self.client, self.platform, self.headers = client, platform, headers

    def create(self, name: str = "train", content: bytes = CONTENT, **extra: str) -> httpx.Response:
        body = {"file_name": name, "file_size": len(content), "extension": "jsonl", **extra}
        return self.client.post("/api/cli/datasets", json=body, headers=self.headers)

    def send(self, dataset: dict[str, Any], content: bytes = CONTENT) -> httpx.Response:
        upload, parts = dataset["upload"], None
        base = self.platform.urls.base_url
        if upload["method"] == "simple":
            assert (
                self.client.put(upload["presigned_url"].removeprefix(base), content=content).status_code
                == 200
            )
        else:
            parts = []
            for part in upload["presigned_urls"]:
                start = (part["part_number"] - 1) * upload["part_size"]
                answer = self.client.put(
                    part["presigned_url"].removeprefix(base), content=content[start : start + part["size"]]
                )
                parts.append({"PartNumber": part["part_number"], "ETag": answer.headers["etag"].strip('"')})
        body = {"file_extension": "jsonl", **({"parts": parts} if parts else {})}
        return self.client.post(
            f"/api/cli/datasets/{dataset['id']}/complete", json=body, headers=self.headers
        )

    def upload(self, name: str = "train", content: bytes = CONTENT, **extra: str) -> dict[str, Any]:
        dataset = self.create(name, content, **extra).json()
        assert self.send(dataset, content).json()["status"] == "pending"
        service.process(self.platform, dataset["id"])
        return self.get(dataset["id"])

    def get(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get(f"/api/cli/datasets/{name}", headers=self.headers).json()
        return answer


@pytest.fixture
def uploader(client: httpx.Client, platform: Platform, town: Any) -> Uploader:
    return Uploader(client, platform, town.max.scoped())


@pytest.mark.parametrize("part_size", [uploads.PART_SIZE, 100])
def test_a_file_becomes_rows(
    uploader: Uploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_size: int
) -> None:
    monkeypatch.setattr(service, "PART_SIZE", part_size)
    monkeypatch.setattr(service, "plan_parts", lambda size, part=part_size: uploads.plan_parts(size, part))
    dataset = uploader.upload()
    assert (dataset["status"], dataset["row_count"]) == ("uploaded", 12)
    assert dataset["data_preview"][1] == {"system_prompt": "s", "user_prompt": "q 1", "ground_truth": "001"}
    with uploader.platform.database.read() as session:
        stored = session.get_one(Dataset, dataset["id"])
        rows = service.rows_file(uploader.platform, stored, tmp_path / "rows.parquet")
    assert RowReader(rows).read([11])[0].label == "0011"
    answer = uploader.client.get("/api/cli/datasets/train/download", headers=uploader.headers).json()
    url = answer["presigned_url"].removeprefix(uploader.platform.urls.base_url)
    assert uploader.client.get(url).content == CONTENT
    assert answer["file_name"] == "train.jsonl"


def test_completing_is_idempotent_and_queues_one_job(uploader: Uploader) -> None:
    dataset = uploader.create().json()
    assert [uploader.send(dataset).status_code for _ in range(3)] == [200, 200, 200]
    with uploader.platform.database.read() as session:
        assert session.query(Job).filter(Job.kind == service.PROCESS_JOB).count() == 1


def test_completing_without_the_bytes_is_refused(uploader: Uploader) -> None:
    dataset = uploader.create().json()
    answer = uploader.client.post(
        f"/api/cli/datasets/{dataset['id']}/complete",
        json={"file_extension": "jsonl"},
        headers=uploader.headers,
    )
    assert answer.status_code == 409
    assert "part 1 of 1 has not been uploaded" in answer.json()["error"]


def test_a_bad_row_makes_the_dataset_an_error_that_names_the_line(uploader: Uploader) -> None:
    bad = CONTENT + b'{"system_prompt": "s", "user_prompt": NaN}\n'
    dataset = uploader.upload("bad", bad)
    assert dataset["status"] == "error"
    logs = uploader.client.get("/api/cli/datasets/bad/logs", headers=uploader.headers).json()["logs"]
    assert any("Line 13: invalid JSON (NaN is not JSON)" in line["message"] for line in logs)
    assert uploader.upload("bad")["status"] == "uploaded"  # a failed upload does not hold the name


def test_a_name_is_replaced_only_when_asked_and_only_by_a_good_file(uploader: Uploader) -> None:
    old = uploader.upload()
    clash = uploader.create()
    assert clash.status_code == 409
    assert clash.json()["existing_dataset_id"] == old["id"]
    broken = uploader.upload(content=b"nope\n" * 9, overwrite_dataset_id=old["id"])
    assert broken["status"] == "error"
    with uploader.platform.database.read() as session:
        assert service.find_ready(session, _workspace(session, old), "train").id == old["id"]
    new = uploader.upload(overwrite_dataset_id=old["id"])
    assert new["status"] == "uploaded"
    listed = uploader.client.get("/api/cli/datasets", headers=uploader.headers).json()
    assert new["id"] in [d["id"] for d in listed["datasets"]]
    assert old["id"] not in [d["id"] for d in listed["datasets"]]


def _workspace(session: Any, dataset: dict[str, Any]) -> str:
    return str(session.get_one(Dataset, dataset["id"]).workspace_id)


def test_outsiders_see_nothing(uploader: Uploader, town: Any) -> None:
    uploader.upload()
    own = uploader.client.get("/api/cli/datasets", headers=town.eve.scoped("other")).json()
    assert own["datasets"] == []
    assert uploader.client.get("/api/cli/datasets", headers=town.eve.scoped("acme")).status_code == 403


def test_aborting_frees_the_name(uploader: Uploader) -> None:
    dataset = uploader.create().json()
    uploader.client.post(f"/api/cli/datasets/{dataset['id']}/abort", json={}, headers=uploader.headers)
    assert uploader.get(dataset["id"])["status"] == "cancelled"
    assert uploader.create().status_code == 201


def test_a_replacement_that_never_came_hides_nothing(uploader: Uploader) -> None:
    old = uploader.upload()
    started = uploader.create(overwrite_dataset_id=old["id"]).json()
    assert uploader.get("train")["id"] == old["id"]
    uploader.client.post(f"/api/cli/datasets/{started['id']}/abort", json={}, headers=uploader.headers)
    assert uploader.get("train")["id"] == old["id"]
    assert uploader.get(started["id"])["status"] == "cancelled"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"extension": "txt"}, "extension"),
        ({"file_name": ".."}, "file_name"),
        ({"file_size": 0}, "file_size"),
        ({"file_size": 6 * 2**30}, "file_size"),
    ],
)
def test_impossible_uploads_are_refused_at_once(
    uploader: Uploader, change: dict[str, Any], field: str
) -> None:
    body = {"file_name": "x", "file_size": 10, "extension": "csv", **change}
    answer = uploader.client.post("/api/cli/datasets", json=body, headers=uploader.headers)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_a_file_that_cannot_be_processed_ends_in_error_not_in_limbo(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    from osmosis_platform.datasets import jobs
    from osmosis_platform.jobs.runner import JobRunner

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service, "index_file", broken)
    dataset = uploader.create().json()
    uploader.send(dataset)
    with uploader.platform.database.write() as session:
        session.query(Job).update({"max_attempts": 1})
    runner = JobRunner(uploader.platform, jobs.WORK, {"light": 1})
    runner.start()
    try:
        deadline = time.monotonic() + 20
        while uploader.get(dataset["id"])["status"] != "error" and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        runner.stop(10)
    assert "No space left on device" in uploader.get(dataset["id"])["error"]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PART_SIZE", 300)
    monkeypatch.setattr(service, "plan_parts", lambda size, part=300: uploads.plan_parts(size, part))


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_upload_goes_on_under_the_same_id(uploader: Uploader, town: Any) -> None:
    first = uploader.create().json()
    again = uploader.create().json()
    assert (again["id"], again["upload"]["s3_key"]) == (first["id"], first["upload"]["s3_key"])
    assert again["upload"]["uploaded_parts"] == []
    part, sent = again["upload"]["presigned_urls"][1], CONTENT[300:600]
    url = part["presigned_url"].removeprefix(uploader.platform.urls.base_url)
    etag = uploader.client.put(url, content=sent).headers["etag"].strip('"')
    known = {"part_number": 2, "size": 300, "sha256": hashlib.sha256(sent).hexdigest(), "etag": etag}
    assert uploader.create().json()["upload"]["uploaded_parts"] == [known]
    other = uploader.create(content=CONTENT + b"\n").json()
    assert other["id"] != first["id"]  # another file takes the place of the abandoned one
    assert other["upload"]["uploaded_parts"] == []
    assert list(uploader.platform.parts.folder.glob(f"{first['upload']['upload_id']}*")) == []
    stranger = Uploader(uploader.client, uploader.platform, town.ada.scoped())
    assert stranger.create(content=CONTENT + b"\n").status_code == 409


def test_a_file_of_one_part_starts_anew(uploader: Uploader) -> None:
    first = uploader.create().json()
    again = uploader.create().json()
    assert again["id"] != first["id"]
    refused = uploader.send(first)  # its dataset is gone
    assert refused.status_code == 404
    assert (
        "The upload of train is over: another upload of this name took its place" in refused.json()["error"]
    )
    assert uploader.send(again).json()["status"] == "pending"


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_replacement_goes_on_and_replaces(uploader: Uploader) -> None:
    old = uploader.upload()
    first = uploader.create(overwrite_dataset_id=old["id"]).json()
    clash = uploader.create()
    assert clash.status_code == 409  # --overwrite is needed every time
    for replaced in (clash.json()["existing_dataset_id"], old["id"]):
        assert uploader.create(overwrite_dataset_id=replaced).json()["id"] == first["id"]
    longer = CONTENT + CONTENT
    second = uploader.create(content=longer, overwrite_dataset_id=clash.json()["existing_dataset_id"]).json()
    assert second["id"] != first["id"]
    assert uploader.send(second, longer).json()["status"] == "pending"
    service.process(uploader.platform, second["id"])
    listed = uploader.client.get("/api/cli/datasets", headers=uploader.headers).json()["datasets"]
    assert [(d["id"], d["row_count"]) for d in listed if d["file_name"] == "train"] == [(second["id"], 24)]


def test_a_part_that_is_sent_again_replaces_the_older(uploader: Uploader) -> None:
    dataset = uploader.create().json()
    url = dataset["upload"]["presigned_url"].removeprefix(uploader.platform.urls.base_url)
    wrong = uploader.client.put(url, content=b"x" * len(CONTENT)).headers["etag"].strip('"')
    assert uploader.client.put(url, content=CONTENT).status_code == 200
    body = {"file_extension": "jsonl", "parts": [{"PartNumber": 1, "ETag": wrong}]}
    path = f"/api/cli/datasets/{dataset['id']}/complete"
    answer = uploader.client.post(path, json=body, headers=uploader.headers)
    assert (answer.status_code, "another ETag" in answer.json()["error"]) == (409, True)
    assert uploader.send(dataset).json()["status"] == "pending"
    service.process(uploader.platform, dataset["id"])
    assert uploader.get(dataset["id"])["row_count"] == 12


@pytest.mark.usefixtures("small_parts")
def test_an_upload_that_nobody_goes_on_with_gives_its_room_back(uploader: Uploader) -> None:
    old, recent = uploader.create("old").json(), uploader.create("recent").json()
    for dataset in (old, recent):
        url = dataset["upload"]["presigned_urls"][0]["presigned_url"]
        path = url.removeprefix(uploader.platform.urls.base_url)
        assert uploader.client.put(path, content=CONTENT[:300]).status_code == 200
    with uploader.platform.database.write() as session:
        session.get_one(Dataset, old["id"]).updated_at = utc_now() - timedelta(days=8)
        session.get_one(Dataset, recent["id"]).updated_at = utc_now() - timedelta(days=6)
    uploader.create("another")
    assert uploader.get(old["id"])["status"] == "cancelled"
    assert uploader.get(recent["id"])["status"] == "uploading"
    stored = uploader.platform.parts.stored
    assert (len(stored(old["upload"]["upload_id"])), len(stored(recent["upload"]["upload_id"]))) == (0, 1)
    assert uploader.create("old").json()["id"] != old["id"]
