"""Checkpoints go to Hugging Face in one commit, by a job that outlives the platform, with a token that is never seen again."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy import select

from osmosis_platform.adapters.base_models import resolve_for_training
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.context import Platform
from osmosis_platform.hugging_face import tokens, uploads
from osmosis_platform.hugging_face.jobs import WORK
from osmosis_platform.hugging_face.models import HubToken, HubUpload
from osmosis_platform.jobs.runner import JobRunner
from osmosis_platform.runs.models import Run
from osmosis_platform.secrets.rotation import rotate

PAGE = "/acme/settings/hugging-face"
TOKEN = "hf_opensesame"
WEIGHTS = b"weights" * 1000
CONFIG = {"peft_type": "LORA", "base_model_name_or_path": "/srv/models/qwen"}


@dataclass
class Hub:
    """A real HTTP server that speaks the hub's API: repositories, and what each commit put into them."""

    url: str = ""
    visibility: dict[str, str] = field(default_factory=dict)
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    refuse_commits: bool = False
    asked: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status and JSON for a request."""
        if method == "PUT":
            self.stored[path.rpartition("/")[2]] = body
            return 200, {}
        if token != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid user token."}
        if path == "/api/whoami-v2":
            return 200, {"type": "user", "name": "acme-lab"}
        if path == "/api/validate-yaml":
            return 200, {"warnings": [], "errors": []}
        if path == "/api/repos/create":
            self.asked.set()
            assert self.gate.wait(60)
            return self._create(json.loads(body))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            files = [{"path": f["path"], "uploadMode": _mode(f["path"]), "shouldIgnore": False}
                     for f in json.loads(body)["files"]]  # fmt: skip
            return 200, {"files": files}
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [{**o, "actions": {"upload": {"href": f"{self.url}/lfs/{o['oid']}"}}}
                       for o in json.loads(body)["objects"]]  # fmt: skip
            return 200, {"transfer": "basic", "objects": objects}
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            return self._commit(found[1], [json.loads(line) for line in body.splitlines()])
        return 404, {"error": f"no such address: {path}"}

    def _create(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        repository = f"{asked['organization']}/{asked['name']}"
        there = repository in self.visibility
        self.visibility.setdefault(repository, asked["visibility"])
        return 409 if there else 200, {"url": f"{self.url}/{repository}"}

    def _commit(self, repository: str, lines: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        if self.refuse_commits:
            return 403, {"error": f"Forbidden: {TOKEN} may only read"}
        assert repository in self.visibility
        files = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.stored[value["oid"]]
        self.commits.append((repository, files))
        oid = f"{len(self.commits):040x}"
        return 200, {"commitUrl": f"{self.url}/{repository}/commit/{oid}", "commitOid": oid}


def _mode(path: str) -> str:
    return "lfs" if path.endswith(".safetensors") else "regular"


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()
    found.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = self.path.partition("?")[0]
            status, told = found.answer(self.command, path, self.headers.get("authorization", ""), body)
            content = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    found.gate.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def model(platform: Platform, workshop: Any) -> str:
    """The id of the LoRA model `heron-4`, with an adapter as training packs it."""
    packed = io.BytesIO()
    files = {"adapter_config.json": json.dumps(CONFIG).encode(), "adapter_model.safetensors": WEIGHTS,
             "tokenizer.json": b"{}", "README.md": b"peft's own", "optimizer.pt": b"x"}  # fmt: skip
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    town = workshop.town
    with platform.database.write() as session:
        base = resolve_for_training(session, "Qwen/Qwen3-0.6B")
        run = Run(
            workspace_id=town.acme.id, kind="train", name="calm-heron", creator_id=town.ada.user.id, rollout_name="echo",
            entrypoint="main.py", commit_sha="0" * 40, model_path=base.name, dataset_id=workshop.dataset_id, config={},
        )  # fmt: skip
        session.add(run)
        session.flush()
        made = LoraModel(
            workspace_id=town.acme.id, name="heron-4", base_model_id=base.id, run_id=run.id, step=4, reward=0.5,
            blob_sha256=platform.blobs.put_bytes(packed.getvalue()).sha256,
        )  # fmt: skip
        session.add(made)
        session.flush()
        return made.id


def use(platform: Platform, endpoint: str) -> None:
    platform.settings = platform.settings.model_copy(update={"hf_endpoint": endpoint})


def add_token(amy: Any, name: str = "lab", value: str = TOKEN) -> str:
    answer = amy.post(PAGE, name=name, value=value)
    assert answer.status_code == 303, answer.text
    return str(next(token["id"] for token in amy.json(PAGE)["tokens"] if token["name"] == name))


def upload(person: Any, model: str, token: str, **more: str) -> Any:
    form = {"token": token, "repository": "acme-lab/heron", **more}
    return person.post(f"/acme/models/{model}/hugging-face/uploads", **form)


@contextmanager
def working(platform: Platform) -> Iterator[None]:
    """Uploads are done meanwhile, as in a running platform."""
    platform.supervisor = Supervisor(platform)
    runner = JobRunner(platform, WORK, {uploads.QUEUE: 1})
    runner.start()
    try:
        yield
    finally:
        assert runner.stop(60)
        platform.supervisor.close()
        platform.supervisor = None


def ended(platform: Platform) -> HubUpload:
    """The upload, once it goes on no more."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with platform.database.read() as session:
            found = session.scalar(select(HubUpload))
        if found is not None and found.status != "uploading":
            return found
        time.sleep(0.05)
    raise AssertionError("the upload does not end")


def test_an_upload_outlives_a_restart_and_is_one_commit(
    browser: Callable[[str], Any], platform: Platform, town: Any, hub: Hub, model: str
) -> None:
    use(platform, hub.url)
    amy, max = browser("amy"), browser("max")
    token = add_token(amy)
    api = f"/api/cli/models/{model}"
    before = max.client.get(api, headers=town.max.scoped()).json()
    assert [before[key] for key in ("hf_upload_status", "hf_url", "uploaded_by")] == [None] * 3
    hub.gate.clear()
    with working(platform):
        assert upload(max, model, token).status_code == 303
        assert hub.asked.wait(120)
        again = upload(amy, model, token, repository="acme-lab/other")
        assert (again.status_code, again.json()["code"]) == (409, "UPLOAD_RUNNING")
        going = max.get(f"/acme/models/{model}").text
        assert 'http-equiv="refresh"' in going
        assert "/hugging-face/uploads" not in going
    assert max.client.get(api, headers=town.max.scoped()).json()["hf_upload_status"] == "uploading"
    hub.gate.set()
    with working(platform):
        assert ended(platform).error is None
    told = max.client.get(api, headers=town.max.scoped()).json()
    url = f"{hub.url}/acme-lab/heron"
    assert [told[k] for k in ("hf_upload_status", "hf_url", "uploaded_by")] == ["uploaded", url, "Max"]
    [row] = max.json("/acme/training/calm-heron")["checkpoints"]
    assert [row[k] for k in ("hf_upload_status", "hf_url", "uploaded_by")] == ["uploaded", url, "Max"]
    run = max.get("/acme/training/calm-heron").text
    assert f'href="{url}"' in run
    assert f'href="/acme/models/{model}#hugging-face"' in run

    assert hub.visibility == {"acme-lab/heron": "private"}
    [(repository, files)] = hub.commits
    assert (repository, sorted(files)) == (
        "acme-lab/heron",
        ["README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json"],
    )
    assert files["adapter_model.safetensors"] == WEIGHTS
    assert list(hub.stored) == [hashlib.sha256(WEIGHTS).hexdigest()]
    assert json.loads(files["adapter_config.json"]) == {
        **CONFIG,
        "base_model_name_or_path": "Qwen/Qwen3-0.6B",
    }
    card = files["README.md"].decode()
    assert card.startswith("---\nbase_model: Qwen/Qwen3-0.6B\nlibrary_name: peft\n")
    assert "# heron-4" in card
    with platform.database.read() as session:
        events = session.scalars(
            select(AuditEvent).where(AuditEvent.action.in_(["hf_token.add", "model.hf_upload"]))
        )
        assert [(e.action, e.target) for e in events.all()] == [
            ("hf_token.add", "lab"),
            ("model.hf_upload", "heron-4"),
        ]


def test_a_refused_upload_says_why_and_is_tried_again(
    browser: Callable[[str], Any], platform: Platform, hub: Hub, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    use(platform, hub.url)
    amy = browser("amy")
    token = add_token(amy)
    hub.refuse_commits = True
    with working(platform):
        upload(amy, model, token, visibility="public")
        failed = ended(platform)
        assert (failed.status, failed.url) == ("failed", None)
        assert failed.error is not None
        assert "may not write to acme-lab/heron" in failed.error
        page = amy.get(f"/acme/models/{model}").text
        assert "may not write to acme-lab/heron" in page
        assert "Try again" in page
        assert TOKEN not in failed.error + page + caplog.text
        hub.refuse_commits = False
        upload(amy, model, token, visibility="public")
        assert ended(platform).status == "uploaded"
    assert hub.visibility == {"acme-lab/heron": "public"}
    amy.post(f"{PAGE}/{token}/delete")
    assert upload(amy, model, token).status_code == 404
    assert ended(platform).status == "uploaded"


def test_without_network_an_upload_fails_with_the_address(
    browser: Callable[[str], Any], platform: Platform, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "TRIES", 1)
    amy = browser("amy")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, never listening: connections are refused
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        use(platform, endpoint)
        token = add_token(amy)
        assert amy.json(PAGE)["tokens"][0]["account"] is None
        assert "not checked" in amy.get(PAGE).text
        with working(platform):
            upload(amy, model, token)
            assert ended(platform).error == f"Hugging Face cannot be reached at {endpoint}: ConnectError."


def test_tokens_are_checked_counted_and_never_shown(
    browser: Callable[[str], Any], platform: Platform, town: Any, hub: Hub, model: str
) -> None:
    use(platform, hub.url)
    amy, max = browser("amy"), browser("max")
    wrong = amy.post(PAGE, html=True, name="wrong", value="hf_wrong")
    assert wrong.status_code == 400
    assert "does not accept this token" in wrong.text
    assert "hf_wrong" not in wrong.text
    assert amy.post(PAGE, name="spaces", value="hf a").status_code == 400
    assert max.post(PAGE, name="mine", value=TOKEN).status_code == 403
    assert amy.json(PAGE)["tokens"] == []
    token = add_token(amy)
    assert amy.post(PAGE, name="lab", value=TOKEN).status_code == 409
    with platform.database.write() as session:
        for number in range(2, 21):
            given = {"name": f"t{number}", "value": TOKEN, "account": None}
            tokens.add_token(session, platform.keys, town.acme.id, town.amy.user, **given)
    assert amy.post(PAGE, name="more", value=TOKEN).status_code == 409
    shown = max.json(PAGE)["tokens"]
    assert len(shown) == 20
    assert shown[0] | {"created_at": ""} == {
        "id": token, "name": "lab", "account": "acme-lab", "creator_name": "Amy", "created_at": "",
    }  # fmt: skip
    assert TOKEN not in max.get(PAGE).text + max.get(f"/acme/models/{model}").text
    assert max.post(f"{PAGE}/{token}/delete").status_code == 403

    rotate(platform.database, platform.keys)
    with platform.database.read() as session:
        kept = session.get_one(HubToken, token)
        assert tokens.value_of(kept, platform.keys) == TOKEN
        assert TOKEN.encode() not in kept.ciphertext
    eve = browser("eve")
    assert eve.post(f"/other/settings/hugging-face/{token}/delete").status_code == 404
    assert upload(eve, model, token).status_code == 404
    assert upload(max, model, token, repository="no-owner").status_code == 400
    assert amy.post(f"{PAGE}/{token}/delete").status_code == 303
    assert len(amy.json(PAGE)["tokens"]) == 19
