"""A submit that is sent twice under one Idempotency-Key makes one run."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from osmosis_platform.app import create_app
from osmosis_platform.context import Platform
from osmosis_platform.jobs.models import Job
from osmosis_platform.runs.models import Run


def counts(platform: Platform) -> tuple[int, int]:
    with platform.database.read() as session:
        runs, jobs = (session.scalar(select(func.count()).select_from(model)) or 0 for model in (Run, Job))
        return runs, jobs


@pytest.mark.parametrize("room", ["eval-runs", "training-runs"])
def test_a_repeated_submit_answers_with_the_first_run(
    client: httpx.Client, platform: Platform, workshop: Any, room: str
) -> None:
    headers = {**workshop.town.ada.scoped(), "Idempotency-Key": "one"}
    secrets = {"required": ["A_KEY"], "provided": {"A_KEY": "first value"}}
    first = client.post(
        f"/api/cli/{room}", json=workshop.body("tiny/model", secrets=secrets), headers=headers
    )
    again = client.post(
        f"/api/cli/{room}", json=workshop.body("tiny/model", secrets=secrets), headers=headers
    )
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert counts(platform) == (1, 1)


def test_without_a_key_every_submit_is_a_run(client: httpx.Client, platform: Platform, workshop: Any) -> None:
    names = {
        client.post(
            "/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=workshop.town.ada.scoped()
        ).json()["name"]
        for _ in range(2)
    }
    assert len(names) == 2
    assert counts(platform) == (2, 2)


def test_a_key_belongs_to_one_request_of_one_person(
    client: httpx.Client, platform: Platform, workshop: Any
) -> None:
    ada = {**workshop.town.ada.scoped(), "Idempotency-Key": "one"}
    body = workshop.body("tiny/model")
    assert client.post("/api/cli/eval-runs", json=body, headers=ada).status_code == 201
    for room, other in (
        ("eval-runs", workshop.body("tiny/model", evaluation_config={"n": 2})),
        ("training-runs", body),
    ):
        answer = client.post(f"/api/cli/{room}", json=other, headers=ada)
        assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    max_ = {**workshop.town.max.scoped(), "Idempotency-Key": "one"}
    assert client.post("/api/cli/eval-runs", json=body, headers=max_).status_code == 201
    assert counts(platform)[0] == 2


def test_a_refused_submit_can_be_corrected_under_its_key(
    client: httpx.Client, platform: Platform, workshop: Any
) -> None:
    headers = {**workshop.town.ada.scoped(), "Idempotency-Key": "one"}
    assert client.post("/api/cli/eval-runs", json=workshop.body("nope"), headers=headers).status_code == 404
    right = workshop.body("tiny/model")
    assert client.post("/api/cli/eval-runs", json=right, headers=headers).status_code == 201
    assert counts(platform)[0] == 1


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "ä"])
def test_a_key_is_a_printable_word(client: httpx.Client, workshop: Any, key: str) -> None:
    headers = [*workshop.town.ada.scoped().items(), ("Idempotency-Key", key.encode("latin-1"))]
    answer = client.post("/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION")


def test_requests_at_the_same_moment_make_one_run(platform: Platform, workshop: Any) -> None:
    headers = {**workshop.town.ada.scoped(), "Idempotency-Key": "one"}
    answers: list[httpx.Response] = []
    with TestClient(create_app(platform), raise_server_exceptions=False) as client:

        def send() -> None:
            answers.append(
                client.post("/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=headers)
            )

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert counts(platform) == (1, 1)


def test_what_was_written_is_read_at_once(client: httpx.Client, workshop: Any) -> None:
    headers = workshop.town.ada.scoped()
    for number in range(3):
        made = client.post("/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=headers).json()
        page = client.get("/api/cli/eval-runs?limit=1", headers=headers).json()
        assert (page["eval_runs"][0]["id"], page["total_count"]) == (made["id"], number + 1)
        assert client.post(f"/api/cli/eval-runs/{made['id']}/stop", headers=headers).status_code == 200
        detail = client.get(f"/api/cli/eval-runs/{made['name']}", headers=headers).json()
        assert detail["eval_run"]["status"] == "stopped"
