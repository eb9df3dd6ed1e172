"""The main job by clicks: upload a dataset, start an evaluation, deploy a model and talk to it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from sqlalchemy import select

from osmosis_platform.accounts.models import User
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.datasets import service
from osmosis_platform.datasets.jobs import WORK
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.jobs.runner import JobRunner
from osmosis_platform.repositories.models import SyncEvent
from osmosis_platform.repositories.service import create_repository, sync_branch
from osmosis_platform.runs.models import Run
from osmosis_platform.storage.uploads import plan_parts
from osmosis_platform.workspaces.models import Workspace
from osmosis_platform.workspaces.service import create_workspace

SCRIPTED = Path(__file__).parents[2] / "platform" / "compute" / "scripted_inference.py"
# Processes start and files are checked meanwhile, on a machine that may be busy.
SLOW_MS = 90_000
HOSTILE = "</script><img src=/owned onerror=window.owned=1>"


@pytest.fixture(scope="module")
def workspace(site: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A workspace with a pushed rollout and a base model, on a platform that checks datasets and serves models."""
    platform = site.platform
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text("{}")

    def write_tree(tree: Path) -> None:
        rollout = tree / "rollouts" / "echo"
        rollout.mkdir(parents=True)
        (rollout / "main.py").write_text("")

    with platform.database.write() as session:
        ada = session.scalars(select(User).where(User.email == site.email)).one()
        made = create_workspace(session, "works", ada)
        create_repository(session, platform, made, "agents", author=ada, write_tree=write_tree)
        session.add(BaseModel(name="tiny/echo", path=str(folder)))
        sync = session.scalars(
            select(SyncEvent).where(SyncEvent.branch == "main").order_by(SyncEvent.created_at.desc())
        ).first()
    sync_branch(platform, sync.id)
    runner = JobRunner(platform, WORK, {"light": 1})
    runner.start()
    platform.supervisor = Supervisor(platform, inference_command=[sys.executable, str(SCRIPTED)])
    yield "works"
    platform.supervisor.close()
    platform.supervisor = None
    assert runner.stop(60)


def test_from_a_file_to_a_run_to_a_model_that_answers(
    visit: Callable[..., Any], site: Any, workspace: str, tmp_path: Path
) -> None:
    file = tmp_path / f"sums {HOSTILE.replace('/', '')}.jsonl"
    rows = (
        {"system_prompt": "Add.", "user_prompt": f"{n} + 1 {HOSTILE}", "ground_truth": str(n + 1)}
        for n in range(40)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    visitor = visit()
    page = visitor.sign_in()
    page.goto(f"{site.url}/{workspace}/datasets")
    expect(page.locator("html[data-upload=ready]")).to_have_count(1)
    page.get_by_label("JSONL, CSV or Parquet").set_input_files(file)
    page.get_by_role("button", name="Upload", exact=True).press("Enter")
    page.get_by_role("link", name="Open the dataset").click(timeout=SLOW_MS)
    expect(page.locator("h1")).to_contain_text("sums <")
    expect(page.locator("#status")).to_contain_text("uploaded", timeout=SLOW_MS)
    page.get_by_label("Text").fill("39 +")
    page.get_by_role("button", name="Search").press("Enter")
    expect(page.locator("table.rows tbody tr")).to_have_count(1)

    page.get_by_role("link", name="Evaluate on it").click()
    config = page.get_by_label("Config in TOML")
    expect(config).to_have_value(re.compile("rollout = .echo."))
    page.get_by_label("Model to evaluate").fill("tiny/echo")
    page.get_by_label("limit").fill("0")
    expect(config).to_have_value(re.compile("limit = 0"))
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_role("alert")).to_contain_text("evaluation.limit: must be >= 1")
    expect(page.get_by_label("Model to evaluate")).to_have_value("tiny/echo")
    visitor.problems = [problem for problem in visitor.problems if "400" not in problem]
    page.get_by_role("button", name="Line 8").press("Enter")
    assert (
        page.evaluate(
            "document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)"
        )
        == "limit = 0"
    )
    page.keyboard.type("limit = 5")
    page.get_by_role("button", name="Submit the run").click()
    expect(page.locator("#summary .badge")).to_have_text("pending")
    expect(page.locator("dl.facts")).to_contain_text(["5"])
    with site.platform.database.read() as session:
        run = session.scalars(select(Run).where(Run.model_path == "tiny/echo")).one()
        assert run.config["evaluation"]["limit"] == 5

    page.get_by_text("More", exact=True).press("Enter")
    page.get_by_label("New name").fill("first-try")
    page.get_by_role("button", name="Rename").press("Enter")
    expect(page.locator("h1")).to_have_text("first-try")
    page.goto(f"{site.url}/{workspace}/evaluation")
    page.get_by_label("Choose all").check()
    expect(page.get_by_text("1 chosen")).to_be_visible()
    page.get_by_role("button", name="Stop…").press("Enter")
    page.get_by_role("button", name="Stop it").press("Enter")
    expect(page.get_by_role("row", name="first-try").locator(".badge")).to_have_text("stopped")
    assert page.evaluate("window.owned") is None


def test_an_interrupted_upload_sends_only_what_is_missing(
    visit: Callable[..., Any], site: Any, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PART_SIZE", 1000)
    monkeypatch.setattr(service, "plan_parts", lambda size, part_size=1000: plan_parts(size, part_size))
    file = tmp_path / "resumed.jsonl"
    file.write_text(
        "".join(f'{{"system_prompt": "s", "user_prompt": "{n}", "ground_truth": ""}}\n' for n in range(90))
    )
    data, platform = file.read_bytes(), site.platform
    with platform.database.write() as session:
        ada = session.scalars(select(User).where(User.email == site.email)).one()
        where = session.scalars(select(Workspace.id).where(Workspace.name == workspace)).one()
        made = service.create(
            session, platform, where, ada, name="resumed", size=len(data), extension="jsonl"
        )
    folder = platform.parts.folder / made[1].id
    folder.mkdir()
    for number, part in ((1, data[:1000]), (3, b"other bytes".ljust(1000))):  # the third is of another file
        (folder / f"{number}-{hashlib.sha256(part).hexdigest()}").write_bytes(part)
    page = visit().sign_in()
    page.goto(f"{site.url}/{workspace}/datasets")
    expect(page.locator("html[data-upload=ready]")).to_have_count(1)
    sent: list[str] = []
    page.on("request", lambda r: sent.append(r.url.split("?")[0][-2:]) if r.method == "PUT" else None)
    page.get_by_label("JSONL, CSV or Parquet").set_input_files(file)
    page.get_by_role("button", name="Upload", exact=True).click()
    page.get_by_role("link", name="Open the dataset").click(timeout=SLOW_MS)
    expect(page.locator("#status")).to_contain_text("uploaded", timeout=SLOW_MS)
    assert sorted(sent) == [f"/{number}" for number in range(2, -(-len(data) // 1000) + 1)]
    with platform.database.read() as session:
        dataset = session.scalars(select(Dataset).where(Dataset.name == "resumed")).one()
        assert platform.blobs.read_bytes(dataset.source_sha256) == data


def test_talking_to_a_model(visit: Callable[..., Any], site: Any, workspace: str) -> None:
    page = visit().sign_in()
    page.goto(f"{site.url}/{workspace}/models")
    page.get_by_role("link", name="Try tiny/echo").click()
    say = page.get_by_label("Your message")
    say.fill(f"hello {HOSTILE}")
    say.press("Enter")
    answers = page.locator(".turn.agent .said")
    # The scripted server sends its words one by one, without what was between them.
    heard = f"tiny/echo heard hello {HOSTILE}".replace(" ", "")
    expect(answers).to_have_text([heard], timeout=SLOW_MS)
    expect(page.get_by_role("button", name="Answer anew")).to_be_visible()
    expect(say).to_be_focused()
    say.fill("again")
    page.get_by_role("button", name="Send").click()
    expect(answers).to_have_count(2)
    expect(answers.last).to_have_text("tiny/echoheardagain")
    assert page.evaluate("window.owned") is None
    assert page.locator("img[src='/owned']").count() == 0
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".turn")).to_have_count(0)
