"""Runs get another name, and several are stopped or deleted at once after a look at what that means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import func, select

from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.compute.plan import run_folder
from osmosis_platform.context import Platform
from osmosis_platform.db.models import metadata
from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.runs.service import finish, log

CONFIG = """[experiment]
rollout = "echo"
entrypoint = "main.py"
model_path = "tiny/model"
dataset = "sums"
[secrets]
required = []
"""


@pytest.fixture
def max(browser: Callable[[str], Any], workshop: Any) -> Any:
    return browser("max")


def start(who: Any, room: str = "evaluation") -> str:
    return who.post(f"/acme/{room}/new", config=CONFIG).headers["location"].rpartition("/")[2]


def look(who: Any, **chosen: Any) -> Any:
    return who.json("/acme/evaluation/bulk?" + urlencode(chosen, doseq=True))


def deeds(platform: Platform) -> list[tuple[str, str]]:
    with platform.database.read() as session:
        found = session.scalars(select(AuditEvent).order_by(AuditEvent.created_at, AuditEvent.id))
        return [(event.action, event.target) for event in found if not event.action.endswith(".submit")]


def test_a_new_name_is_the_runs_everywhere(max: Any, platform: Platform) -> None:
    run, other = start(max), start(max)
    page = f"/acme/evaluation/{run}"
    assert max.post(f"{page}/rename", name=" nightly_v1.2-b ").status_code == 303
    assert max.json("/acme/evaluation/nightly_v1.2-b")["run"]["id"] == run
    assert (
        max.post(f"{page}/rename", name="nightly_v1.2-b").status_code == 303
    )  # the same name changes nothing
    assert deeds(platform) == [("eval.rename", "nightly_v1.2-b")]
    for name, status, says in (
        ("", 400, "1 to 100 letters"),
        ("a/b", 400, "1 to 100 letters"),
        ("new", 400, "1 to 100 letters"),
        ("x" * 101, 400, "1 to 100 letters"),
        ("nightly_v1.2-b", 409, "Another run"),
    ):
        answer = max.post(f"/acme/evaluation/{other}/rename", name=name)
        assert (answer.status_code, says in answer.json()["error"]) == (status, True)


def test_several_are_stopped_after_a_question(max: Any, platform: Platform) -> None:
    first, second = start(max), start(max)
    chosen = {"action": "stop", "run": [first, second], "back": "/acme/evaluation?q=x"}
    question = look(max, **chosen)
    assert (question["done"], [run["refused"] for run in question["runs"]]) == (False, [None, None])
    with platform.database.read() as session:
        assert set(session.scalars(select(Run.status))) == {"pending"}
    answer = max.post("/acme/evaluation/bulk", **chosen)
    assert (answer.status_code, answer.headers["location"]) == (303, "/acme/evaluation?q=x")
    with platform.database.read() as session:
        assert set(session.scalars(select(Run.status))) == {"stopped"}
    again = look(max, **chosen)
    assert {run["refused"] for run in again["runs"]} == {"It is stopped already."}


def test_a_deleted_run_leaves_nothing_and_others_stay(max: Any, platform: Platform, workshop: Any) -> None:
    with platform.database.read() as session:
        before = {t.name: session.scalar(select(func.count()).select_from(t)) for t in metadata.sorted_tables}
    gone, kept, waiting = start(max), start(max), start(max)
    blob = platform.blobs.put_bytes(b"x").sha256
    with platform.database.write() as session:
        for run_id in (gone, kept):
            finish(session, session.get_one(Run, run_id), "failed", error="no")
            session.add(RunAttempt(run_id=run_id, row_index=0, run_index=0, rollout_id="r", status="success"))
            session.add(
                LoraModel(
                    workspace_id=workshop.town.acme.id,
                    name=f"lora-{run_id}",
                    base_model_id=workshop.base_model_id,
                    run_id=run_id,
                    step=1,
                    blob_sha256=blob,
                    deployment_status="active" if run_id == kept else "inactive",
                )
            )
            log(session, run_id, "a line")
    folder = run_folder(platform, gone).root
    folder.mkdir(parents=True)
    chosen = {"action": "delete", "run": [gone, kept, waiting]}
    asked = max.get("/acme/evaluation/bulk?" + urlencode(chosen, doseq=True)).text
    assert "Delete 1 run?" in asked
    assert f'name="run" value="{gone}"' in asked
    assert f'name="run" value="{kept}"' not in asked, "what would be refused is not sent"
    answer = max.post("/acme/evaluation/bulk", **chosen).json()
    refused = [run["refused"] for run in answer["runs"]]
    assert refused[0] is None
    assert "is deployed. Undeploy it first." in refused[1]
    assert "is pending. Stop it first." in refused[2]
    assert not folder.exists()
    with platform.database.write() as session:
        assert set(session.scalars(select(Run.id))) == {kept, waiting}
        assert session.scalars(select(LoraModel.run_id)).all() == [kept]
        session.scalars(select(LoraModel)).one().deployment_status = "inactive"
        finish(session, session.get_one(Run, waiting), "stopped")
    assert max.post("/acme/evaluation/bulk", action="delete", run=[kept, waiting]).status_code == 303
    with platform.database.read() as session:
        after = {t.name: session.scalar(select(func.count()).select_from(t)) for t in metadata.sorted_tables}
    ours = {"audit_events", "jobs", "blobs"}
    assert {k: v for k, v in after.items() if k not in ours} == {
        k: v for k, v in before.items() if k not in ours
    }
    assert [action for action, _ in deeds(platform)] == ["eval.delete"] * 3


def test_runs_of_the_other_kind_or_workspace_cannot_be_chosen(
    browser: Callable[[str], Any], max: Any
) -> None:
    run = start(max, "training")
    assert max.post("/acme/evaluation/bulk", action="stop", run=run).status_code == 404
    assert browser("eve").post("/other/training/bulk", action="stop", run=run).status_code == 404
    assert max.post("/acme/training/bulk", action="stop").status_code == 400
