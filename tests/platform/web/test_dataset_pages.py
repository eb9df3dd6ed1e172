"""Datasets in the browser: uploaded in parts, looked into, found again, replaced and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import select

from osmosis_platform.context import Platform
from osmosis_platform.datasets import service
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run

PAGE = "/acme/datasets"


def lines(count: int, word: str = "What is") -> bytes:
    rows = ({"user_prompt": f"{word} {n}?", "ground_truth": str(n)} for n in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def upload(who: Any, platform: Platform, data: bytes, name: str = "sums2.jsonl", **more: str) -> str:
    begun = who.post(f"{PAGE}/uploads", name=name, size=str(len(data)), **more)
    assert begun.status_code == 201, begun.text
    body = begun.json()
    etags, at = [], 0
    for part in body["parts"]:
        assert part["url"].startswith("/uploads/")
        answer = who.client.put(part["url"], content=data[at : at + part["size"]])
        etags.append(answer.headers["etag"])
        at += part["size"]
    assert who.post(f"{PAGE}/{body['id']}/complete", etag=etags).json()["status"] == "pending"
    service.process(platform, body["id"])
    return str(body["id"])


@pytest.fixture
def max(browser: Callable[[str], Any], town: Any) -> Any:
    return browser("max")


def test_rows_are_paged_searched_and_counted(max: Any, platform: Platform) -> None:
    data = lines(60) + json.dumps({"user_prompt": "ÄPFEL 100%_x", "ground_truth": None}).encode()
    dataset = upload(max, platform, data)
    page = max.json(f"{PAGE}/{dataset}")
    assert (len(page["preview"]), page["page"]["total"]) == (25, 61)
    last = max.json(f"{PAGE}/{dataset}?offset=50")["preview"]
    assert [row["row_index"] for row in last] == list(range(50, 61))
    found = max.json(f"{PAGE}/{dataset}?q=äpfel")
    assert [row["row_index"] for row in found["preview"]] == [60]
    assert found["filter"] == {"q": "äpfel", "looked_at": 61}
    assert max.json(f"{PAGE}/{dataset}?q=100%25_X")["page"]["total"] == 1, "no character is a pattern"
    threes = max.json(f"{PAGE}/{dataset}?q=is 3&offset=2")
    assert threes["page"]["total"] == 11
    assert [row["row_index"] for row in threes["preview"]] == [31, 32, 33, 34, 35, 36, 37, 38, 39]
    assert "No row holds this text" in max.get(f"{PAGE}/{dataset}?q=nowhere").text
    assert page["column_facts"][0] == {
        "column": "user_prompt", "filled": 61, "of": 61, "mean_characters": 11, "longest_characters": 12,
    }  # fmt: skip
    assert page["column_facts"][1]["filled"] == 60


def test_a_replaced_file_becomes_an_earlier_version(max: Any, platform: Platform) -> None:
    first = upload(max, platform, lines(5))
    refused = max.post(f"{PAGE}/uploads", name="sums2.jsonl", size="10")
    assert (refused.status_code, refused.json()["code"]) == (409, "DATASET_EXISTS")
    assert refused.json()["existing_dataset_id"] == first
    second = upload(max, platform, lines(6), overwrite=first)
    versions = max.json(f"{PAGE}/{second}")["versions"]
    assert [(v["id"], v["rows"], v["current"], v["runs"]) for v in versions] == [
        (second, 6, True, 0),
        (first, 5, False, 0),
    ]
    assert "Versions" in max.get(f"{PAGE}/{second}").text


def test_an_interrupted_upload_says_what_is_there(max: Any, platform: Platform) -> None:
    size = str(33 * 1024 * 1024)
    begun = max.post(f"{PAGE}/uploads", name="big.csv", size=size).json()
    assert [part["size"] for part in begun["parts"]] == [32 * 1024 * 1024, 1024 * 1024]
    max.client.put(begun["parts"][1]["url"], content=b"x" * 1024 * 1024)
    again = max.post(f"{PAGE}/uploads", name="big.csv", size=size).json()
    assert again["id"] == begun["id"]
    assert list(again["there"]) == ["2"]
    assert max.post(f"{PAGE}/{again['id']}/abort").json()["status"] == "cancelled"


def test_a_file_goes_in_one_form_without_script(max: Any, platform: Platform) -> None:
    def send(name: str, data: bytes, **more: str) -> Any:
        return max.client.post(
            PAGE, data={"csrf": max.csrf, **more}, files={"file": (name, data)}, follow_redirects=False
        )

    answer = send("plain.jsonl", lines(4))
    assert answer.status_code == 303
    dataset = answer.headers["location"].rpartition("/")[2]
    service.process(platform, dataset)
    assert max.json(f"{PAGE}/plain")["dataset"]["row_count"] == 4
    assert send("plain.txt", b"x").status_code == 400
    assert send("plain.jsonl", lines(5)).status_code == 409
    assert send("plain.jsonl", lines(5), overwrite="yes").status_code == 303
    bare = max.client.post(PAGE, data={}, files={"file": ("a.jsonl", b"{}")}, follow_redirects=False)
    assert bare.status_code == 403, "a form without its token"
    huge = send("plain.jsonl", b"x" * (17 * 1024 * 1024))
    assert huge.status_code == 413


def test_what_a_bad_file_does_wrong_is_shown(max: Any, platform: Platform) -> None:
    dataset = upload(max, platform, lines(5) + b'{"user_prompt": [5]}\n', name="bad.jsonl")
    page = max.get(f"{PAGE}/{dataset}").text
    assert "line 6" in page.split('role="alert"')[1].lower()


def test_lists_are_chosen_by_the_address(max: Any, platform: Platform) -> None:
    for name, count in (("alpha", 4), ("beta", 9), ("gamma_1", 5)):
        upload(max, platform, lines(count), name=f"{name}.jsonl")
    upload(max, platform, b"nonsense", name="broken.jsonl")

    def names(query: str) -> list[str]:
        return [d["file_name"] for d in max.json(f"{PAGE}?{query}")["datasets"]]

    assert names("sort=name") == ["alpha", "beta", "broken", "gamma_1"]
    assert names("sort=rows") == ["beta", "gamma_1", "alpha", "broken"]
    assert names("sort=oldest")[0] == "alpha"
    assert names("status=error") == ["broken"]
    assert names("q=A_") == ["gamma_1"]
    assert "No dataset matches" in max.get(f"{PAGE}?q=zzz").text
    assert max.client.get(f"{PAGE}?sort=nonsense").status_code == 400


def test_datasets_are_deleted_unless_a_run_reads_them(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max = browser("max")
    other = upload(max, platform, lines(3))
    run = max.client.post(
        "/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=workshop.town.max.scoped()
    ).json()
    chosen = {"action": "delete", "dataset": [workshop.dataset_id, other]}
    asked = max.json(f"{PAGE}/bulk?{urlencode(chosen, doseq=True)}")
    assert [bool(item["refused"]) for item in asked["datasets"]] == [True, False]
    assert len(max.json(PAGE)["datasets"]) == 2
    left = max.post(f"{PAGE}/bulk", **chosen).json()
    assert run["name"] in left["datasets"][0]["refused"]
    assert [d["file_name"] for d in max.json(PAGE)["datasets"]] == ["sums"]
    with platform.database.write() as session:
        session.scalars(select(Run)).one().status = "finished"
    assert max.post(f"{PAGE}/bulk", action="delete", dataset=workshop.dataset_id).status_code == 303
    with platform.database.read() as session:
        assert all(dataset.deleted_at for dataset in session.scalars(select(Dataset)))
    assert max.get(f"/acme/evaluation/{run['id']}").status_code == 200, "the run that used it stays readable"
