"""A platform that serves real pages to a real Chromium, with one of everything in its database."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright
from sqlalchemy import select

from osmosis_platform.accounts.service import create_user
from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform, open_platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.evaluation.results import refresh_results
from osmosis_platform.hugging_face import tokens as hub_tokens
from osmosis_platform.hugging_face.models import HubUpload
from osmosis_platform.repositories.models import Repository, SyncEvent
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.runs.models import Run, RunArtifact, RunAttempt, RunMetric
from osmosis_platform.runs.service import log
from osmosis_platform.settings import Settings
from osmosis_platform.webhooks import service as webhooks
from osmosis_platform.webhooks.models import WebhookDelivery
from osmosis_platform.workspaces.invites import create_invite
from osmosis_platform.workspaces.models import Membership, Workspace

ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
expect.set_options(timeout=20_000)  # a busy machine may take its time
EMAIL, PASSWORD = "ada@example.com", "correct horse battery"
Theme = Literal["light", "dark"]

LONG = "extraordinarily-" * 9 + "long"
HOSTILE = (
    "<script>window.owned=1</script><img src=/owned onerror='window.owned=1'> "
    "\x1b[31mred\x1b[0m \u202egnirts desrever " + "W" * 400
)


@dataclass
class Site:
    """A platform that serves real pages, and the ids of what was put into it."""

    platform: Platform
    url: str
    ids: dict[str, str] = field(default_factory=dict)
    email: str = EMAIL
    password: str = PASSWORD
    long: str = LONG
    hostile: str = HOSTILE

    def pages(self) -> dict[str, str]:
        """Every kind of page, by the name of its screenshot."""
        ids = self.ids
        return {
            "home": "/acme",
            "datasets": "/acme/datasets",
            "dataset": f"/acme/datasets/{ids['dataset']}",
            "dataset-error": f"/acme/datasets/{ids['broken']}",
            "rollouts": "/acme/rollouts",
            "evaluations": "/acme/evaluation",
            "evaluation": f"/acme/evaluation/{ids['eval-done']}",
            "attempt": f"/acme/evaluation/{ids['eval-done']}/attempts/0/0",
            "compare-evaluations": f"/acme/compare/evaluation?run={ids['eval-done']}&run={ids['eval-better']}&run={ids['eval-failed']}",
            "compare-trainings": f"/acme/compare/training?run={ids['train-running']}&run={ids['train-hostile']}",
            "compare-nothing": "/acme/compare/training",
            "trainings": "/acme/training",
            "training": f"/acme/training/{ids['train-running']}",
            "training-crashed": f"/acme/training/{ids['train-crashed']}",
            "training-waiting": f"/acme/training/{ids['train-waiting']}",
            "models": "/acme/models",
            "secrets": "/acme/secrets",
            "keys": "/acme/settings/keys",
            "members": "/acme/settings/members",
            "settings": "/acme/settings",
            "audit": "/acme/settings/audit",
            "invite": f"/invite?token={ids['invite']}",
            "tokens": "/account/tokens",
            "error": "/acme/training/no-such-run",
            "device": "/device?code=ABCD-EFGH",
            "empty-home": "/fresh",
            "empty-datasets": "/fresh/datasets",
            "empty-trainings": "/fresh/training",
            "empty-models": "/fresh/models",
            "evaluation-new": f"/acme/evaluation/new?from={ids['eval-done']}",
            "training-new": "/acme/training/new",
            "model": f"/acme/models/{LONG}-step-10",
            "playground": "/acme/playground",
            "git": "/acme/git",
            "hugging-face": "/acme/settings/hugging-face",
            "webhooks": "/acme/settings/webhooks",
            "webhook-delivery": f"/acme/settings/webhooks/deliveries/{ids['delivery']}",
            "account": "/account",
            "new-workspace": "/new",
            "empty-git": "/fresh/git",
            "empty-webhooks": "/fresh/settings/webhooks",
            "runs-delete": f"/acme/training/bulk?action=delete&run={ids['train-crashed']}&run={ids['train-running']}",
        }

    def add_run(self, key: str, kind: str, status: str, **values: Any) -> str:
        """A run with its settings as a submit would leave it; returns its id."""
        config = {
            "experiment": {},
            "evaluation": {"n": 2, "pass_threshold": 1.0},
            "training": {"lr": 0.002},
            "advanced": {"seed": 0},
        }
        with self.platform.database.write() as session:
            run = Run(
                workspace_id=self.ids["workspace"], creator_id=self.ids["user"], base_model_id=self.ids["base"],
                dataset_id=self.ids["dataset"], kind=kind, status=status,
                **{"name": key, "rollout_name": "multiply", "entrypoint": "main.py", "commit_sha": "ab12cd34" * 5, "branch": "main",
                   "model_path": "osmosis/tiny-multiply", "config": config, "started_at": None if status == "pending" else utc_now(),
                   "completed_at": None if status in ("pending", "running") else utc_now(), **values},
            )  # fmt: skip
            session.add(run)
            session.flush()
            self.ids[key] = run.id
            return run.id

    def add_point(self, run_id: str, step: int, value: float) -> None:
        """A value of three metrics at one step."""
        with self.platform.database.write() as session:
            for key, shift in (
                ("rollout/raw_reward", 0.0),
                ("train/entropy_loss", 1.0),
                (f"custom/{LONG}", -4000.0),
            ):
                session.add(
                    RunMetric(run_id=run_id, key=key, step=step, value=value + shift, timestamp=utc_now())
                )


class Visitor:
    """A browser window; whatever goes wrong in it is kept in `problems`."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.page: Page = context.new_page()
        self.site = site
        self.problems: list[str] = []
        self.page.on(
            "console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on("requestfailed", self._failed)
        self.page.on(
            "response", lambda r: self.problems.append(f"{r.status} {r.url}") if r.status >= 400 else None
        )

    def _failed(self, request: Request) -> None:
        # Leaving a page aborts what it still loads.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"failed: {request.url} {request.failure}")

    def another(self) -> Visitor:
        """A second window of the same browser; what goes wrong there counts here."""
        other = Visitor(self.page.context, self.site)
        other.problems = self.problems
        return other

    def go(self, path: str) -> Page:
        self.page.goto(self.site.url + path)
        return self.page

    def sign_in(self) -> Page:
        page = self.go("/sign-in?next=/acme")
        page.fill("#email", EMAIL)
        page.fill("#password", PASSWORD)
        page.click("button")
        page.wait_for_url("**/acme")
        return page


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    platform = open_platform(Settings(data_dir=tmp_path_factory.mktemp("dashboard") / "data"))
    config = uvicorn.Config(create_app(platform), port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    ready = threading.Event()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        ready.wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    site = Site(platform, f"http://127.0.0.1:{port}")
    seed(site)
    yield site
    server.should_exit = True
    thread.join(10)
    platform.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "install chromium (Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Callable[..., Visitor]]:
    """Opens windows; at the end nothing may have gone wrong in any of them."""
    contexts: list[BrowserContext] = []
    visitors: list[Visitor] = []

    def visit(width: int = 1440, *, theme: Theme = "light", script: bool = True) -> Visitor:
        size: Any = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=script)
        context.set_default_timeout(20_000)
        contexts.append(context)
        visitors.append(Visitor(context, site))
        return visitors[-1]

    yield visit
    for context in contexts:
        context.close()
    assert [problem for visitor in visitors for problem in visitor.problems] == []


def seed(site: Site) -> None:
    """A workspace with one of everything, good and bad, and an empty one."""
    platform = site.platform
    with platform.database.write() as session:
        user = create_user(session, email=EMAIL, name="Ada Lovelace", password=PASSWORD)
        acme = Workspace(name="acme", timezone="Asia/Tokyo")
        fresh = Workspace(name="fresh")
        session.add_all([acme, fresh])
        session.flush()
        entered = [Membership(workspace_id=w.id, user_id=user.id, role="owner") for w in (acme, fresh)]
        session.add_all(entered)
        for name, role in ((HOSTILE[:120], "admin"), (LONG, "member")):
            colleague = create_user(session, email=f"{role}-{LONG}@example.com", name=name)
            session.add(Membership(workspace_id=acme.id, user_id=colleague.id, role=role))
        site.ids["invite"] = create_invite(session, entered[0], f"new-{LONG}@example.com", "admin")[1]
        repository = Repository(workspace_id=acme.id, full_name="acme/agents", identity="acme/agents")
        base = session.query(BaseModel).filter_by(name="osmosis/tiny-multiply").first()
        base = base or BaseModel(name="osmosis/tiny-multiply", description="A toy for the demo and the tests")
        base.path = "/nowhere"  # nobody loads it: it is only offered
        session.add_all([repository, base])
        session.flush()
        common = {"branch": "main", "commit_sha": "ab12cd34" * 5}
        session.add(
            Rollout(
                workspace_id=acme.id,
                repository_id=repository.id,
                name="multiply",
                description=HOSTILE,
                **common,
            )
        )
        for status, error in (("success", None), ("error", HOSTILE)):
            session.add(
                SyncEvent(
                    repository_id=repository.id,
                    author="Ada",
                    message=LONG,
                    status=status,
                    error=error,
                    **common,
                )
            )
        token = {"name": HOSTILE[:60], "value": "hf_x", "account": "acme-lab"}
        hub_tokens.add_token(session, platform.keys, acme.id, user, **token)
        url, events = "https://example.com/hook", ["eval_run.completed"]
        webhooks.save(session, platform.keys, acme.id, user, url=url, events=events, enabled=True)
        webhooks.announce(
            session, acme.id, events[0], subject=HOSTILE, page="/acme", data=lambda: {"name": HOSTILE}
        )
        delivery = session.scalars(select(WebhookDelivery)).one()
        error = {
            "at": utc_now().isoformat(),
            "status": 500,
            "error": "The answer was 500.",
            "milliseconds": 12,
        }
        delivery.status, delivery.tries, site.ids["delivery"] = "failed", [error] * 3, delivery.id
        site.ids["workspace"], site.ids["user"], site.ids["base"] = acme.id, user.id, base.id
    _datasets(site)
    _trainings(site)
    _evaluations(site)


def _datasets(site: Site) -> None:
    row = {"system_prompt": "You are helpful.", "user_prompt": HOSTILE, "ground_truth": "1081"}
    with site.platform.database.write() as session:
        for key, name, status in (("dataset", LONG, "uploaded"), ("broken", HOSTILE, "error")):
            ok = status == "uploaded"
            dataset = Dataset(
                workspace_id=site.ids["workspace"], creator_id=site.ids["user"], name=name, extension="jsonl", status=status,
                file_size=61_234, row_count=512 if ok else None, preview=[row] * 5 if ok else None, error=None if ok else HOSTILE,
            )  # fmt: skip
            session.add(dataset)
            session.flush()
            site.ids[key] = dataset.id
            log(session, dataset.id, HOSTILE, level="error", step="processing")


def _adapter(platform: Platform) -> str:
    """A checkpoint as a training worker uploads it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        body = json.dumps({"peft_type": "LORA", "r": 4}).encode()
        entry = tarfile.TarInfo("adapter_config.json")
        entry.size = len(body)
        archive.addfile(entry, io.BytesIO(body))
    return platform.blobs.put_bytes(packed.getvalue()).sha256


def _trainings(site: Site) -> None:
    running = site.add_run(
        "train-running", "train", "running", current_step=14, total_steps=20, reward=0.7, phase="train"
    )
    crashed = site.add_run(
        "train-crashed", "train", "crashed", name=LONG, current_step=3, total_steps=20, error=HOSTILE
    )
    site.add_run("train-waiting", "train", "pending")
    site.add_run(
        "train-hostile", "train", "finished", name=HOSTILE[:120], model_path=HOSTILE, rollout_name=LONG
    )
    for number in range(12):
        site.add_run(f"older-{number}", "train", "finished", reward=0.5)
    blob = _adapter(site.platform)
    for step in range(12):
        site.add_point(running, step, step / 12)
    with site.platform.database.write() as session:
        for number in range(40):
            log(
                session,
                running,
                f"step {number}/40 reward 0.31 \x1b[32mok\x1b[0m",
                step="train",
                level="warning" if number == 7 else "info",
            )
        log(session, crashed, HOSTILE, level="error", step="train")
        for step in (5, 10):
            model = LoraModel(
                workspace_id=site.ids["workspace"],
                name=f"{LONG}-step-{step}",
                base_model_id=site.ids["base"],
                run_id=running,
                step=step,
                reward=0.8,
                blob_sha256=blob,
            )
            session.add(model)
        session.flush()
        session.add(
            HubUpload(
                model_id=model.id,
                run_id=running,
                repository="acme-lab/" + "w" * 87,
                private=True,
                status="failed",
                error=HOSTILE,
                uploader_id=site.ids["user"],
            )
        )


def _evaluations(site: Site) -> None:
    done = site.add_run("eval-done", "eval", "finished", total_runs=128, sampled_rows=64)
    better = site.add_run(
        "eval-better", "eval", "finished", total_runs=128, sampled_rows=64, env={"NOTE": HOSTILE}
    )
    site.add_run(
        "eval-failed",
        "eval",
        "failed",
        error="The rollout server did not start: ModuleNotFoundError: No module named 'agents'",
    )
    call = {"tool_call_id": "c", "function_name": "multiply", "arguments": {"a": 23, "note": HOSTILE}}
    steps = [
        {"source": "system", "message": "Use the multiply tool."},
        {"source": "user", "message": HOSTILE},
        {
            "source": "agent",
            "message": "",
            "model_name": "tiny",
            "reasoning_content": f"I should multiply. {HOSTILE}",
            "tool_calls": [call],
            "observation": {"results": [{"source_call_id": "c", "content": HOSTILE}]},
        },
        {"source": "agent", "message": "The answer is 1081."},
    ]
    stored = site.platform.blobs.put_bytes(json.dumps({"steps": steps}).encode()).sha256
    with site.platform.database.write() as session:
        for row in range(64):
            for attempt in range(2):
                failed = (row + attempt) % 9 == 4
                session.add(RunAttempt(
                    run_id=done, row_index=row, run_index=attempt, rollout_id=f"r{row}", status="failed" if failed else "success",
                    reward=None if failed else (row % 5) / 4, tokens=212, duration_ms=812.4, trajectory_sha256=stored,
                    error_type="timeout" if failed else None, error_message=HOSTILE if failed else None,
                ))  # fmt: skip
        session.add(
            RunArtifact(
                run_id=done, row_index=0, run_index=0, path=f"notes/{LONG}.txt", size=12, sha256=stored
            )
        )
        for row in range(64):
            for attempt in range(2):
                reward = 1.0 if row % 5 < 2 else (row % 5) / 4
                session.add(
                    RunAttempt(
                        run_id=better,
                        row_index=row,
                        run_index=attempt,
                        rollout_id=f"b{row}",
                        status="success",
                        reward=reward,
                    )
                )
        session.flush()
        refresh_results(session, session.get_one(Run, done))
        refresh_results(session, session.get_one(Run, better))
