"""Who may do what: a row for every route of the application. A route without a row fails here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from sqlalchemy import select

from osmosis_platform.accounts import sessions
from osmosis_platform.accounts.tokens import create_token
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.dev_servers.models import DevServer
from osmosis_platform.inference.keys import create_key
from osmosis_platform.runs.models import Run, RunAttempt, RunSample
from osmosis_platform.webhooks import service as webhooks
from osmosis_platform.webhooks.models import WebhookDelivery
from osmosis_platform.workspaces.invites import create_invite
from osmosis_platform.workspaces.service import membership_of

PEOPLE = ("ada", "amy", "max", "eve", "nobody")  # owner, admin, member, outsider, no credentials


@dataclass(frozen=True)
class Row:
    """`rule`: who may. `ok`: the status for those. `path`: values of its parameters. `json`, `form`: what is sent.

    public: everybody, without credentials. person: whoever is signed in. member, admin, owner: of the workspace, with at least that role.
    other: a credential of another kind decides (run token, API key, signature), so that none of these people may.
    """

    rule: str
    ok: int = 200
    path: dict[str, str] = field(default_factory=dict)
    json: Any = None
    form: dict[str, str] | None = None
    query: str = ""


def member(ok: int = 200, **more: Any) -> Row:
    return Row("member", ok, **more)


SHA = hashlib.sha256(b"").hexdigest()
FILE = {"file_name": "more", "file_size": 10, "extension": "jsonl"}
RUN, TRAINING = {"name_or_id": "RUN"}, {"name_or_id": "TRAINING"}
BENCHMARK = {
    "experiment_config": {"benchmark": "x"},
    "agents": [{"model": {"type": "hosted", "base_model": "a", "lora_model_name": "b"}}],
}
API = {
    "GET /openapi.json": Row("public"),
    "GET /health": Row("public"),
    "POST /api/cli/device/authorize": Row("public", json={"deviceName": "laptop"}),
    "POST /api/cli/device/token": Row("public", 400, json={"device_code": "osd_unknown"}),
    "GET /api/cli/verify": Row("person"),
    "DELETE /api/cli/tokens/{token_id}": Row("person", 204, path={"token_id": "OWN_TOKEN"}),
    "GET /api/cli/workspaces": Row("person"),
    "GET /api/cli/quickstart": member(query="organizationId=WORKSPACE"),
    "POST /api/cli/quickstart": member(json={"organizationId": "WORKSPACE", "intent": "train"}),
    "GET /api/cli/environment-secrets": member(),
    "POST /api/cli/environment-secrets": Row(
        "admin", json={"name": "A_KEY", "value": "v", "scope": "workspace"}
    ),
    "DELETE /api/cli/environment-secrets": Row("admin", 404, json={"name": "NONE", "scope": "workspace"}),
    "POST /api/cli/datasets": member(409, json={**FILE, "file_name": "sums"}),
    "GET /api/cli/datasets": member(),
    "GET /api/cli/datasets/{name_or_id}": member(path={"name_or_id": "sums"}),
    "POST /api/cli/datasets/{dataset_id}/complete": member(409, path={"dataset_id": "DATASET"}, json={}),
    "POST /api/cli/datasets/{dataset_id}/abort": member(path={"dataset_id": "DATASET"}),
    "GET /api/cli/datasets/{name_or_id}/download": member(path={"name_or_id": "sums"}),
    "GET /api/cli/datasets/{name_or_id}/logs": member(path={"name_or_id": "sums"}),
    "GET /api/cli/rollouts": member(),
    "POST /api/cli/eval-runs/imports": member(400, json={}),
    "POST /api/cli/eval-runs/imports/{session_id}/uploads": member(
        404, path={"session_id": "s"}, json={"paths": ["index.jsonl"]}
    ),
    "POST /api/cli/eval-runs/imports/{session_id}/uploads/complete": member(
        404, path={"session_id": "s"}, json={"path": "index.jsonl"}
    ),
    "POST /api/cli/eval-runs/imports/{session_id}/finalize": member(404, path={"session_id": "s"}),
    "POST /api/cli/eval-runs": member(201, json="SUBMIT"),
    "GET /api/cli/eval-runs": member(),
    "GET /api/cli/eval-runs/{name_or_id}": member(path=RUN),
    "GET /api/cli/eval-runs/{name_or_id}/metrics": member(path=RUN),
    "GET /api/cli/eval-runs/{name_or_id}/logs": member(path=RUN),
    "POST /api/cli/eval-runs/{name_or_id}/stop": member(path=RUN),
    "GET /api/cli/eval-runs/{name_or_id}/samples/manifest": member(path=RUN),
    "POST /api/cli/eval-runs/{name_or_id}/samples/download-urls": member(
        404, path=RUN, json={"items": [{"path": "x"}]}
    ),
    "POST /api/cli/eval-runs/{name_or_id}/retry": member(path=RUN),
    "POST /api/cli/training-runs": member(201, json="SUBMIT"),
    "GET /api/cli/training-runs": member(),
    "GET /api/cli/training-runs/{name_or_id}": member(path=TRAINING),
    "GET /api/cli/training-runs/{name_or_id}/metrics": member(path=TRAINING),
    "GET /api/cli/training-runs/{name_or_id}/logs": member(path=TRAINING),
    "POST /api/cli/training-runs/{name_or_id}/stop": member(path=TRAINING),
    "GET /api/cli/training-runs/{name_or_id}/checkpoints": member(path=TRAINING),
    "GET /api/cli/models/base": member(),
    "GET /api/cli/models/base/{name_or_path}": member(path={"name_or_path": "tiny%2Fmodel"}),
    "GET /api/cli/models/lora": member(),
    "GET /api/cli/models/{name}": member(path={"name": "LORA"}),
    "POST /api/cli/models/{name}/deploy": member(404, path={"name": "none"}),
    "POST /api/cli/models/{name}/undeploy": member(path={"name": "LORA"}),
    "GET /api/cli/benchmarks": member(),
    "GET /api/cli/benchmarks/{name_or_id}": member(404, path={"name_or_id": "x"}),
    "POST /api/cli/benchmark-runs": member(404, json=BENCHMARK),
    "GET /api/cli/benchmark-runs": member(),
    "GET /api/cli/benchmark-runs/{name_or_id}": member(404, path={"name_or_id": "x"}),
    "GET /api/cli/benchmark-runs/{name_or_id}/logs": member(404, path={"name_or_id": "x"}),
    "GET /api/cli/benchmark-runs/{name_or_id}/outputs/manifest": member(404, path={"name_or_id": "x"}),
    "POST /api/cli/benchmark-runs/{name_or_id}/outputs/download-urls": member(
        404, path={"name_or_id": "x"}, json={"items": [{"path": "x"}]}
    ),
    "POST /api/cli/benchmark-runs/{name_or_id}/stop": member(404, path={"name_or_id": "x"}),
    "POST /api/cli/dev-rollout-server": member(400, json={}),
    "GET /api/cli/dev-rollout-server": member(),
    "DELETE /api/cli/dev-rollout-server/{server_id}": member(path={"server_id": "SERVER"}, json={}),
    "GET /api/cli/dev-rollout-server/{server_id}/logs": member(path={"server_id": "SERVER"}),
    "GET /api/cli/dev-rollout-server/{server_id}/logs/stream": member(path={"server_id": "SERVER"}),
}
OTHER = {
    "POST /api/runs/{run_id}/events": Row("other", 401, path={"run_id": "RUN"}, json={"events": []}),
    "PUT /api/runs/{run_id}/blobs/{sha256}": Row("other", 401, path={"run_id": "RUN", "sha256": SHA}),
    "GET /api/runs/{run_id}/attempts": Row("other", 401, path={"run_id": "RUN"}),
    "POST /api/git/{connection_id}/push": Row("other", 404, path={"connection_id": "none"}, json={}),
    "GET /v1/models": Row("other", 401),
    "POST /v1/chat/completions": Row("other", 401, json={"model": "tiny/model", "messages": []}),
    "GET /blobs/{sha256}": Row("other", 403, path={"sha256": SHA}),
    "PUT /uploads/{upload_id}/{part}": Row("other", 403, path={"upload_id": "u", "part": "1"}),
}
GIT = {  # git's own program answers: a POST there is none of its requests
    f"{method} /git/{{owner}}/{{repo}}.git/{{tail:path}}": member(
        ok,
        path={"owner": "acme", "repo": "agents", "tail:path": "info/refs"},
        query="service=git-upload-pack",
    )
    for method, ok in (("GET", 200), ("POST", 400))
}
PAGES = {
    "GET /": Row("person", 303),
    "GET /sign-in": Row("public"),
    "POST /sign-in": Row("public", 401, form={"email": "x@example.com", "password": "wrong"}),
    "GET /sign-in/github": Row("public", 404),  # not configured
    "GET /sign-in/github/callback": Row("public", 404),
    "GET /device": Row("person"),
    "POST /device": Row("person", 404, form={"user_code": "AAAA-AAAA", "answer": "deny"}),
    "GET /{workspace}": member(),
    "GET /{workspace}/events": member(query="seconds=0"),
    "GET /{workspace}/datasets": member(),
    "POST /{workspace}/datasets": member(400, form={}),
    "POST /{workspace}/datasets/uploads": member(400, form={"name": "x.txt", "size": "5"}),
    "POST /{workspace}/datasets/{dataset_id}/complete": member(409, path={"dataset_id": "DATASET"}, form={}),
    "POST /{workspace}/datasets/{dataset_id}/abort": member(path={"dataset_id": "DATASET"}, form={}),
    "GET /{workspace}/datasets/bulk": member(query="action=delete&dataset=DATASET"),
    "POST /{workspace}/datasets/bulk": member(form={"action": "delete", "dataset": "sums"}),
    "GET /{workspace}/datasets/{name_or_id}": member(path={"name_or_id": "sums"}),
    "GET /{workspace}/rollouts": member(),
    "GET /{workspace}/git": member(),
    "POST /{workspace}/git/repository": Row("admin", 409, form={"name": "more"}),
    "POST /{workspace}/git/connection": Row("admin", 400, form={"url": "https://127.0.0.1/a/b"}),
    "POST /{workspace}/git/connection/token": Row("admin", 409, form={}),
    "POST /{workspace}/git/connection/secret": Row("admin", 409, form={}),
    "POST /{workspace}/git/connection/remove": Row("admin", 409, form={}),
    "POST /{workspace}/git/sync": member(303, form={}),
    "POST /{workspace}/git/syncs/{sync_id}/retry": member(404, path={"sync_id": "none"}, form={}),
    "GET /{workspace}/{room:room}": member(path={"room:room": "evaluation"}),
    "GET /{workspace}/{room:room}/bulk": member(path={"room:room": "evaluation"}, query="action=delete&run=RUN"),
    "POST /{workspace}/{room:room}/bulk": member(
        303, path={"room:room": "training"}, form={"action": "stop", "run": "TRAINING"}
    ),
    "POST /{workspace}/{room:room}/{name_or_id}/rename": member(
        303, path={"room:room": "training", **TRAINING}, form={"name": "renamed"}
    ),
    "GET /{workspace}/{room:room}/new": member(path={"room:room": "evaluation"}),
    "POST /{workspace}/{room:room}/new": member(400, path={"room:room": "training"}, form={"config": ""}),
    "GET /{workspace}/training/{name_or_id}/metrics.csv": member(path=TRAINING),
    "GET /{workspace}/{room:room}/{name_or_id}": member(path={"room:room": "evaluation", **RUN}),
    "POST /{workspace}/{room:room}/{name_or_id}/stop": member(303, path={"room:room": "evaluation", **RUN}, form={}),
    "GET /{workspace}/evaluation/{name_or_id}/attempts/{row_index}/{run_index}": member(
        path={**RUN, "row_index": "0", "run_index": "0"}
    ),
    "GET /{workspace}/training/{name_or_id}/samples/{step}/{row_index}/{sample_index}": member(
        path={**TRAINING, "step": "1", "row_index": "0", "sample_index": "0"}
    ),
    "GET /{workspace}/compare/evaluation": member(query="run=RUN"),
    "GET /{workspace}/compare/training": member(query="run=TRAINING"),
    "GET /{workspace}/models": member(),
    "GET /{workspace}/models/{name_or_id}": member(path={"name_or_id": "LORA"}),
    "GET /{workspace}/models/{name_or_id}/adapter.tar": member(303, path={"name_or_id": "LORA"}),
    "POST /{workspace}/models/{model_id}/hugging-face/uploads": member(
        400, path={"model_id": "LORA"}, form={"repository": "none"}
    ),
    "GET /{workspace}/playground": member(),
    "POST /{workspace}/playground/chat": member(403, json={"model": "x", "messages": [{}]}),  # without its token
    "POST /{workspace}/models/{model_id}/{action}": member(
        303, path={"model_id": "LORA", "action": "undeploy"}, form={}
    ),
    "GET /{workspace}/secrets": member(),
    "POST /{workspace}/secrets": Row("admin", 303, form={"name": "A_KEY", "value": "v", "scope": "workspace"}),
    "POST /{workspace}/secrets/{secret_id}/delete": member(404, path={"secret_id": "none"}, form={}),
    "GET /new": Row("person"),
    "POST /new": Row("person", 400, form={"name": "A B"}),
    "GET /account": Row("person"),
    "POST /account/name": Row("person", 400, form={}),
    "POST /account/password": Row("person", 400, form={"current": "x", "new": "12345678", "again": "12345678"}),
    "POST /account/sessions/end": Row("person", 303, form={}),
    "POST /account/sessions/{session_id}/end": Row("person", 404, path={"session_id": "none"}, form={}),
    "GET /account/tokens": Row("person"),
    "POST /account/tokens": Row("person", 201, form={"name": "ci"}),
    "POST /account/tokens/{token_id}/revoke": Row("person", 303, path={"token_id": "OWN_TOKEN"}, form={}),
    "GET /{workspace}/settings": member(),
    "POST /{workspace}/settings": Row("admin", 303, form={"name": "acme", "timezone": "UTC"}),
    "POST /{workspace}/settings/delete": Row("owner", 400, form={"confirm": "not this"}),
    "GET /{workspace}/logo": member(404),
    "POST /{workspace}/settings/logo": Row("admin", 400, form={}),
    "POST /{workspace}/settings/logo/remove": Row("admin", 303, form={}),
    "GET /{workspace}/settings/members": member(),
    "POST /{workspace}/settings/members/invites": Row("admin", 201, form={"email": "new@example.com"}),
    "POST /{workspace}/settings/members/invites/{invite_id}/withdraw": Row(
        "admin", 303, path={"invite_id": "PENDING"}, form={}
    ),
    "POST /{workspace}/settings/members/{user_id}/role": Row(
        "admin", 303, path={"user_id": "MAX"}, form={"role": "member"}
    ),
    "POST /{workspace}/settings/members/{user_id}/remove": member(404, path={"user_id": "none"}, form={}),
    "GET /invite": Row("public", query="token=LINK"),
    "POST /invite": Row("public", 404, form={"token": "none"}),
    "GET /{workspace}/settings/keys": member(),
    "GET /{workspace}/api-keys": member(303),
    "GET /{workspace}/settings/audit": Row("admin"),
    "POST /{workspace}/settings/keys": Row("admin", 201, form={"name": "ci"}),
    "POST /{workspace}/settings/keys/{key_id}/revoke": Row("admin", 303, path={"key_id": "API_KEY"}, form={}),
    "GET /{workspace}/settings/webhooks": Row("admin"),
    "POST /{workspace}/settings/webhooks": Row("admin", 400, form={"url": "http://127.0.0.1"}),
    "POST /{workspace}/settings/webhooks/secret": Row("admin", 201, form={}),
    "POST /{workspace}/settings/webhooks/test": Row("admin", 303, form={}),
    "GET /{workspace}/settings/webhooks/deliveries/{delivery_id}": Row("admin", path={"delivery_id": "DELIVERY"}),
    "POST /{workspace}/settings/webhooks/deliveries/{delivery_id}/redeliver": Row(
        "admin", 409, path={"delivery_id": "DELIVERY"}, form={}
    ),
    "GET /{workspace}/settings/hugging-face": member(),
    "POST /{workspace}/settings/hugging-face": Row("admin", 400, form={"name": "lab", "value": "a b"}),
    "POST /{workspace}/settings/hugging-face/{token_id}/delete": Row("admin", 404, path={"token_id": "none"}, form={}),
    "POST /sign-out": Row("person", 303, form={}),  # last: it ends the session
}  # fmt: skip
# The server of the stage has ended: whoever may call it hears so, others do not learn that there is one.
SERVERS = {
    f"{method} /dev-servers/{{server_id}}/{{path:path}}": member(
        503, path={"server_id": "SERVER", "path:path": "health"}
    )
    for method in ("GET", "POST")
}
ROWS = {**API, **OTHER, **GIT, **SERVERS, **PAGES}


@pytest.fixture
def routes(platform: Platform) -> set[str]:
    return {
        f"{method} {route.path}"
        for route in iter_route_contexts(create_app(platform).routes)
        for method in set(route.methods or ()) - {"HEAD"}
    }


def test_every_route_has_a_row(routes: set[str]) -> None:
    assert routes - ROWS.keys() == set(), "say in this table who may use them"
    assert ROWS.keys() - routes == set(), "these rows are of routes that are gone"


@dataclass
class Stage:
    """The platform with something of everything in `acme`, and a client for each person."""

    clients: dict[str, httpx.Client]
    csrf: dict[str, str]
    tokens: dict[str, str]
    values: dict[str, str]
    submit: dict[str, object]

    def ask(self, who: str, label: str, row: Row) -> httpx.Response:
        """Send the row's request as this person."""
        method, path = label.split(" ")
        path = path.replace("{workspace}", "acme")
        for name, value in row.path.items():
            path = path.replace(f"{{{name}}}", self.fill(who, value))
        assert "{" not in path, path
        given: dict[str, Any] = {}
        if row.json is not None:
            given["json"] = self.submit if row.json == "SUBMIT" else self.filled(who, row.json)
        if row.form is not None:
            given["data"] = {**self.filled(who, row.form), "csrf": self.csrf.get(who, "")}
        if label in GIT and who in self.tokens:
            given["auth"] = ("git", self.tokens[who])
        return self.clients[who].request(
            method, f"{path}?{self.fill(who, row.query)}", follow_redirects=False, **given
        )

    def fill(self, who: str, text: str) -> str:
        """The text with the names of this stage."""
        for name, value in {**self.values, "OWN_TOKEN": self.values.get(f"TOKEN {who}", "none")}.items():
            text = text.replace(name, value)
        return text

    def filled(self, who: str, value: Any) -> Any:
        """A request body with the names of this stage."""
        if isinstance(value, dict):
            return {key: self.filled(who, item) for key, item in value.items()}
        return self.fill(who, value) if isinstance(value, str) else value


@pytest.fixture
def stage(platform: Platform, workshop: Any) -> Iterator[Stage]:
    town = workshop.town
    clients, csrf, tokens, values = {}, {}, {}, {"WORKSPACE": town.acme.id}
    app = create_app(platform)
    for who in PEOPLE:
        clients[who] = TestClient(app, raise_server_exceptions=False)
        if who == "nobody":
            clients[who].headers["X-Osmosis-Workspace"] = "acme"
            continue
        person = getattr(town, who)
        clients[who].headers.update(person.scoped())
        with platform.database.write() as session:
            signed = sessions.start_session(session, person.user, 1)
            spare = create_token(session, person.user.id, name="spare")[0]
            csrf[who], values[f"TOKEN {who}"] = signed.session.csrf_token, spare.id
        clients[who].cookies.set(sessions.COOKIE, signed.cookie)
        tokens[who] = person.token
    ada = clients["ada"]
    submit = workshop.body("tiny/model")
    values["RUN"] = ada.post("/api/cli/eval-runs", json=submit).json()["id"]
    values["TRAINING"] = ada.post("/api/cli/training-runs", json=submit).json()["id"]
    values["DATASET"] = ada.post("/api/cli/datasets", json=FILE).json()["id"]
    blob = platform.blobs.put_bytes(b"x").sha256
    with platform.database.write() as session:
        session.get_one(Dataset, workshop.dataset_id).source_sha256 = blob
        lora = LoraModel(
            workspace_id=town.acme.id, name="lora", base_model_id=workshop.base_model_id,
            run_id=session.get_one(Run, values["TRAINING"]).id, step=1, blob_sha256=blob,
        )  # fmt: skip
        session.add(lora)
        session.add(
            RunAttempt(run_id=values["RUN"], row_index=0, run_index=0, rollout_id="r", status="success")
        )
        document = {"calls": [], "tool_sets": [], "outcome": "graded", "reason": None}
        counts = {"sampled_tokens": 0, "total_tokens": 0}
        trajectory = platform.blobs.put_bytes(json.dumps({**document, **counts}).encode())
        sample = {"step": 1, "row_index": 0, "sample_index": 0, "rollout_id": "r"}
        session.add(RunSample(run_id=values["TRAINING"], blob_sha256=trajectory.sha256, **sample))
        server = DevServer(
            workspace_id=town.acme.id, creator_id=town.ada.user.id, rollout_name="echo", repository_path="rollouts/echo",
            entrypoint="main.py", commit_sha="0" * 40, status="stopped", key_hash="",
        )  # fmt: skip
        session.add(server)
        session.flush()
        values["LORA"], values["SERVER"] = lora.id, server.id
        values["MAX"] = town.max.user.id
        ada_in = membership_of(session, town.acme.id, town.ada.user.id)
        assert ada_in is not None
        values["LINK"] = create_invite(session, ada_in, "", "member")[1]
        values["PENDING"] = create_invite(session, ada_in, "later@example.com", "member")[0].id
        url, events = "https://example.com", ["dataset.ready"]
        webhooks.save(
            session, platform.keys, town.acme.id, town.ada.user, url=url, events=events, enabled=True
        )
        webhooks.send_test(session, town.acme.id, town.ada.user)
        values["DELIVERY"] = session.scalars(select(WebhookDelivery.id)).one()
        values["API_KEY"] = create_key(session, town.acme.id, town.ada.user, "ci")[0].id
    yield Stage(clients, csrf, tokens, values, submit)
    for client in clients.values():
        client.close()


def expected(who: str, label: str, row: Row) -> set[int]:
    if row.rule in ("public", "other"):
        return {row.ok}
    if who == "nobody":
        return {401}
    if row.rule == "person":
        return {row.ok}
    if who == "eve":
        page = label in PAGES or label in GIT or label in SERVERS or "quickstart" in label
        return {404 if page else 403}
    if (row.rule == "admin" and who == "max") or (row.rule == "owner" and who in ("amy", "max")):
        return {403}
    return {row.ok}


def test_everybody_gets_what_their_role_allows(stage: Stage) -> None:
    wrong = []
    for label, row in ROWS.items():
        for who in PEOPLE:
            answer = stage.ask(who, label, row)
            if answer.status_code not in expected(who, label, row):
                wrong.append(f"{label} as {who}: {answer.status_code} {answer.text[:200]}")
    assert wrong == [], "\n".join(wrong)


def test_ids_of_another_workspace_are_not_found(stage: Stage) -> None:
    stage.clients["eve"].headers["X-Osmosis-Workspace"] = "other"
    wrong = [
        f"{label}: {answer.status_code} {answer.text[:200]}"
        for label, row in API.items()
        if row.rule == "member"
        and {"RUN", "TRAINING", "DATASET", "LORA", "SERVER", "sums"} & set(row.path.values())
        if (answer := stage.ask("eve", label, row)).status_code != 404
    ]
    assert wrong == [], "\n".join(wrong)
