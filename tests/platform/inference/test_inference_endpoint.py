"""The public endpoint: keys, models of a workspace, completions, streams, and a server that falls."""

from __future__ import annotations

import io
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.context import Platform
from osmosis_platform.inference.keys import create_key, revoke_key
from osmosis_platform.runs.models import Run

SERVER = Path(__file__).parents[1] / "compute" / "scripted_inference.py"


@pytest.fixture
def supervisor(platform: Platform) -> Iterator[Supervisor]:
    supervisor = Supervisor(platform, inference_command=[sys.executable, str(SERVER)])
    platform.supervisor = supervisor
    yield supervisor
    supervisor.close()


def adapter_tar(prefix: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            member = tarfile.TarInfo(prefix + name)
            member.size = 2
            archive.addfile(member, io.BytesIO(b"{}"))
    return buffer.getvalue()


@pytest.fixture
def lora(platform: Platform, workshop: Any) -> str:
    """A trained, not yet deployed LoRA model of acme; its name."""
    with platform.database.write() as session:
        run = Run(
            workspace_id=workshop.town.acme.id, kind="train", name="calm-heron", creator_id=workshop.town.ada.user.id,
            rollout_name="echo", entrypoint="main.py", commit_sha="0" * 40, model_path="tiny/model",
            dataset_id=workshop.dataset_id, config={},
        )  # fmt: skip
        session.add(run)
        session.flush()
        for step in (2, 4):
            session.add(
                LoraModel(
                    workspace_id=workshop.town.acme.id, name=f"calm-heron-step-{step}", base_model_id=workshop.base_model_id,
                    run_id=run.id, step=step, blob_sha256=platform.blobs.put_bytes(adapter_tar()).sha256,
                )
            )  # fmt: skip
    return "calm-heron-step-4"


@pytest.fixture
def key(platform: Platform, workshop: Any) -> str:
    with platform.database.write() as session:
        return create_key(session, workshop.town.acme.id, workshop.town.ada.user, "laptop")[1]


def ask(client: httpx.Client, key: str, model: str, **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **more}
    return client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})


def deploy(client: httpx.Client, workshop: Any, name: str, verb: str = "deploy") -> httpx.Response:
    return client.post(f"/api/cli/models/{name}/{verb}", json={}, headers=workshop.town.ada.scoped())


def test_a_base_model_answers(client: httpx.Client, key: str, supervisor: Supervisor) -> None:
    answer = ask(client, key, "tiny/model")
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "tiny/model heard hello"


def test_wrong_keys_and_models_get_openai_errors(
    client: httpx.Client, key: str, supervisor: Supervisor, workshop: Any
) -> None:
    assert client.post("/v1/chat/completions", json={}).status_code == 401
    for wrong in ("nonsense", workshop.town.ada.token):
        answer = ask(client, wrong, "tiny/model")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    answer = ask(client, key, "no/such")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert ask(client, key, 7).status_code == 400  # type: ignore[arg-type]
    assert supervisor.inference.status == "stopped", "a refused request starts nothing"


ODD_BODIES: list[tuple[str, str | None]] = [
    ('"temperature": NaN', "temperature"),
    ('"temperature": 1e999', "temperature"),
    ('"metadata": {"a": [0, -Infinity]}', "metadata.a[1]"),
    (r'"messages": [{"role": "user", "content": "\ud800"}]', "messages[0].content"),
    (r'"model": "\ud800"', "model"),
    (r'"metadata": {"\ud800": 1}', "metadata"),
    ('"deep": ' + "[" * 100_000, None),
    ('"deep": ' + "[" * 500 + "]" * 500, None),
]


def test_what_json_cannot_carry_is_told_as_openai_does(
    client: httpx.Client, key: str, supervisor: Supervisor
) -> None:
    expected = (400, "invalid_request_error", "invalid_request")
    for more, param in ODD_BODIES:
        raw = '{"model": "tiny/model", "messages": [{"role": "user", "content": "hello"}], ' + more + "}"
        answer = client.post("/v1/chat/completions", content=raw, headers={"Authorization": f"Bearer {key}"})
        error = answer.json()["error"]
        told = (answer.status_code, error["type"], error["code"], error["param"])
        assert told == (*expected, param), more[:40]
    assert supervisor.inference.status == "stopped"


def test_every_refusal_below_v1_is_an_openai_error(client: httpx.Client, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    answers = [
        client.get("/v1/models"),
        client.get("/v1/nothing", headers=headers),
        client.get("/v1/chat/completions", headers=headers),
        client.post("/v1/chat/completions", content=b"[]", headers=headers),
        client.post("/v1/chat/completions", content=b'{"model": "a\\u0000b"}', headers=headers),
    ]
    errors = [answer.json()["error"] for answer in answers]
    assert [answer.status_code for answer in answers][:4] == [401, 404, 405, 400]
    assert answers[4].status_code in (400, 404), "Postgres has no NUL character"
    assert all(set(error) == {"message", "type", "param", "code"} for error in errors)
    assert [error["code"] for error in errors][:4] == [
        "invalid_api_key",
        "not_found",
        "method_not_allowed",
        "invalid_request",
    ]
    assert answers[2].headers["allow"] == "POST"


def test_a_revoked_key_ends(client: httpx.Client, key: str, platform: Platform, workshop: Any) -> None:
    with platform.database.write() as session:
        made, text = create_key(session, workshop.town.acme.id, workshop.town.ada.user, "other")
        revoke_key(session, workshop.town.acme.id, workshop.town.ada.user, made.id)
    headers = {"Authorization": f"Bearer {text}"}
    assert client.get("/v1/models", headers=headers).status_code == 401
    assert client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.usefixtures("only_sqlite")
def test_keys_are_kept_as_hashes(platform: Platform, key: str) -> None:
    platform.database.engine.dispose()
    content = b"".join(path.read_bytes() for path in platform.settings.data_dir.glob("osmosis.sqlite3*"))
    assert key.encode() not in content


def test_a_lora_model_answers_while_it_is_deployed(
    client: httpx.Client, key: str, supervisor: Supervisor, workshop: Any, lora: str
) -> None:
    name = f"tiny/model:{lora}"
    assert ask(client, key, "tiny/model").status_code == 200, "the server runs before the model is deployed"
    assert ask(client, key, name).status_code == 404
    for _ in range(2):
        assert deploy(client, workshop, lora).json()["status"] == "active"
    answer = ask(client, key, name)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == name, "the internal name stays inside"
    models = client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).json()["data"]
    assert {model["id"] for model in models} == {"tiny/model", name}
    for _ in range(2):
        assert deploy(client, workshop, lora, "undeploy").json()["status"] == "inactive"
    assert ask(client, key, name).status_code == 404


def test_models_of_another_workspace_are_not_there(
    client: httpx.Client, platform: Platform, supervisor: Supervisor, workshop: Any, lora: str
) -> None:
    deploy(client, workshop, lora)
    with platform.database.write() as session:
        other = create_key(session, workshop.town.other.id, workshop.town.eve.user, "eve")[1]
    answer = ask(client, other, f"tiny/model:{lora}")
    assert answer.status_code == 404
    assert client.get(f"/api/cli/models/{lora}", headers=workshop.town.eve.scoped("other")).status_code == 404


def test_the_quota_of_deployments(client: httpx.Client, platform: Platform, workshop: Any, lora: str) -> None:
    platform.settings.max_active_deployments = 1
    assert deploy(client, workshop, lora).status_code == 200
    refused = deploy(client, workshop, "calm-heron-step-2")
    assert refused.status_code == 409
    assert "All 1 deployments" in refused.json()["error"]
    listed = client.get("/api/cli/models/lora", headers=workshop.town.ada.scoped()).json()
    assert (listed["active_deployments"], listed["max_active_deployments"]) == (1, 1)
    assert [model["deployment_status"] for model in listed["models"]] == ["active", None]


def test_a_stream_passes_through(client: httpx.Client, key: str, supervisor: Supervisor) -> None:
    answer = ask(client, key, "tiny/model", stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    assert len(lines) == 4
    assert '"content": "hello"' in lines[2]


def test_a_fallen_server_is_started_again(client: httpx.Client, key: str, supervisor: Supervisor) -> None:
    assert ask(client, key, "tiny/model").status_code == 200
    first = supervisor.inference.pid
    url, internal = supervisor.inference.ensure()
    with pytest.raises(httpx.HTTPError):
        httpx.post(
            f"{url}/admin/fall", headers={"Authorization": f"Bearer {internal}"}, json={}, trust_env=False
        )
    deadline = time.monotonic() + 30
    while supervisor.inference.pid in (None, first):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ask(client, key, "tiny/model").status_code == 200


def test_without_a_working_server_callers_get_503(client: httpx.Client, key: str, platform: Platform) -> None:
    assert ask(client, key, "tiny/model").status_code == 503
    broken = Supervisor(
        platform, inference_command=[sys.executable, "-c", "raise SystemExit('no torch here')"]
    )
    platform.supervisor = broken
    try:
        for _ in range(2):
            answer = ask(client, key, "tiny/model")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    finally:
        broken.close()
