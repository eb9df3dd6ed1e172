"""Text that no file, database or program can take is refused as bad input, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

NUL, HALF_PAIR, LONG = "a\0b", "\ud800", "x" * 100_000


def send(
    client: httpx.Client, headers: dict[str, str], path: str, body: Any, method: str = "POST"
) -> httpx.Response:
    """Send JSON as other programs write it: with half of a surrogate pair, which Python's own client refuses."""
    content = json.dumps(body).encode()
    return client.request(
        method, f"/api/cli/{path}", content=content, headers={**headers, "Content-Type": "application/json"}
    )


@pytest.mark.parametrize("room", ["eval-runs", "training-runs"])
@pytest.mark.parametrize("key", ["rollout", "entrypoint", "model_path", "dataset", "branch", "commit_sha"])
def test_every_value_of_an_experiment(client: httpx.Client, workshop: Any, room: str, key: str) -> None:
    for odd in (
        NUL,
        HALF_PAIR,
        LONG,
        f"/{NUL}",
        f"/{HALF_PAIR}",
        f"/{'x' * 300}",
        f"{NUL}.py",
        "--option",
        "../x",
    ):
        body = workshop.body("tiny/model")
        body["experiment_config"][key] = odd
        answer = send(client, workshop.town.ada.scoped(), room, body)
        assert 400 <= answer.status_code < 500, (odd[:10], answer.text)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "datasets", {"file_name": "ODD", "file_size": 1, "extension": "csv"}),
        (
            "POST",
            "datasets",
            {"file_name": "a", "file_size": 1, "extension": "csv", "overwrite_dataset_id": "ODD"},
        ),
        ("POST", "environment-secrets", {"name": "A", "value": "ODD", "scope": "user"}),
        ("DELETE", "environment-secrets", {"name": "ODD", "scope": "user"}),
        ("POST", "device/authorize", {"deviceName": "ODD"}),
        ("POST", "quickstart", {"organizationId": "ODD", "intent": "train"}),
        ("POST", "eval-runs", {"ODD": 1}),
        ("POST", "eval-runs", {"env_config": {"A": "ODD"}}),
        ("POST", "eval-runs", {"secrets": {"required": ["A"], "provided": {"A": "ODD"}}}),
    ],
)
def test_every_other_place(
    client: httpx.Client, workshop: Any, method: str, path: str, body: dict[str, Any]
) -> None:
    for odd in (NUL, HALF_PAIR):
        filled = json.loads(json.dumps(body).replace("ODD", json.dumps(odd)[1:-1]))
        if path == "eval-runs":
            filled = workshop.body("tiny/model", **filled)
        answer = send(client, workshop.town.ada.scoped(), path, filled, method)
        assert 200 <= answer.status_code < 500, (path, odd, answer.text)
        if odd == HALF_PAIR and path != "datasets":
            assert answer.status_code == 400
            assert answer.json()["code"] in ("VALIDATION", "INVALID_CONFIG")


@pytest.mark.parametrize(
    "address",
    ["datasets/a%00/logs", "eval-runs/a%00", "models/base/a%00", "rollouts?branch=a%00", "datasets/%FF"],
)
def test_addresses(client: httpx.Client, town: Any, address: str) -> None:
    answer = client.get(f"/api/cli/{address}", headers=town.ada.scoped())
    assert answer.status_code in (200, 400, 404)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"null", b'"x"', b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000, b"1" * 5000]
)
def test_bodies_that_are_no_object(client: httpx.Client, workshop: Any, raw: bytes) -> None:
    headers = {**workshop.town.ada.scoped(), "Content-Type": "application/json"}
    for path in ("eval-runs", "datasets", "environment-secrets", "eval-runs/imports", "device/token"):
        answer = client.post(f"/api/cli/{path}", content=raw, headers=headers)
        assert raw or "The body has to be a JSON object" in answer.json()["error"]
        assert (answer.status_code, isinstance(answer.json()["error"], str)) == (400, True), (
            path,
            answer.text,
        )
