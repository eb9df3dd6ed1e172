"""Runs are started from a form: it writes the config of the command line, and every problem is told with its line."""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import func, select

from osmosis_ai.config import validate_submission
from osmosis_platform.accounts import sessions
from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.service import hash_password
from osmosis_platform.context import Platform
from osmosis_platform.jobs.models import Job
from osmosis_platform.runs.config_text import BadConfig, config_of, read_config
from osmosis_platform.runs.models import Run

GOOD = """[experiment]
rollout = "echo"
entrypoint = "main.py"
model_path = "tiny/model"
dataset = "sums"

[evaluation]
n = 3

[env]
NOTE = "a \\"quoted\\" word"

[secrets]
required = []
"""


def runs(platform: Platform) -> list[Run]:
    with platform.database.read() as session:
        return list(session.scalars(select(Run).order_by(Run.created_at)))


def test_fields_write_the_config_that_the_command_line_submits(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max = browser("max")
    page = max.json("/acme/training/new")
    assert page["choices"]["rollout"] == ["echo"]
    assert tomllib.loads(page["config"])["experiment"] == {
        "rollout": "echo",
        "entrypoint": "main.py",
        "model_path": "tiny/model",
        "dataset": "sums",
    }
    fields = "part=config&training.total_epochs=2&training.lr=0.0002&advanced.scale_rewards=true&secret=A_KEY"
    answer = max.json(f"/acme/training/new?{fields}")
    written = answer["config"]
    assert answer["defaults"] == {"training.lr": "4e-05"}
    tiny = max.json("/acme/training/new?part=config&experiment.model_path=osmosis/tiny-multiply")
    assert tiny["defaults"] == {"training.lr": "0.002"}
    document = tomllib.loads(written)
    assert document["training"] == {"lr": 0.0002, "total_epochs": 2}
    assert document["advanced"] == {"scale_rewards": True}
    assert document["secrets"] == {"required": ["A_KEY"]}
    typo = max.json("/acme/training/new?part=config&training.total_epochs=two")["config"]
    answer = max.post("/acme/training/new", config=typo)
    assert (answer.status_code, answer.json()["problems"]) == (
        400,
        [
            {
                "message": "training.total_epochs: must be a whole number, got 'two'",
                "line": typo.split("\n").index('total_epochs = "two"') + 1,
            }
        ],
    )
    assert runs(platform) == []


def test_a_form_sent_twice_starts_one_run_and_can_be_run_again(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max = browser("max")
    first = max.post("/acme/evaluation/new", config=GOOD.replace("\n", "\r\n"), key="k-1")
    again = max.post("/acme/evaluation/new", config=GOOD.replace("\n", "\r\n"), key="k-1")
    assert first.status_code == 303
    assert first.headers["location"] == again.headers["location"]
    [run] = runs(platform)
    assert (run.commit_sha, run.branch, run.creator_id) == (
        workshop.commit_sha,
        "main",
        workshop.town.max.user.id,
    )
    assert run.config["evaluation"]["n"] == 3
    assert f'href="/acme/evaluation/new?from={run.id}"' in max.get(first.headers["location"]).text

    prefilled = max.json(f"/acme/evaluation/new?from={run.name}")["config"]
    assert tomllib.loads(prefilled) == tomllib.loads(GOOD)
    form = max.get(f"/acme/evaluation/new?from={run.name}").text
    assert 'name="evaluation.n" value="3"' in form
    second = max.post("/acme/evaluation/new", config=prefilled, key="k-2")
    assert second.status_code == 303
    one, two = runs(platform)
    assert (one.config, one.env, one.name != two.name) == (two.config, two.env, True)


def test_checking_keeps_nothing(browser: Callable[[str], Any], platform: Platform, workshop: Any) -> None:
    max = browser("max")
    answer = max.post("/acme/evaluation/new", html=True, config=GOOD, action="check")
    assert answer.status_code == 200
    assert "Nothing is wrong" in answer.text
    assert runs(platform) == []
    with platform.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0


@pytest.mark.parametrize("room", ["training", "evaluation"])
def test_settings_stay_as_chosen_beside_a_config_that_cannot_be_read(
    browser: Callable[[str], Any], workshop: Any, room: str
) -> None:
    chosen = {
        "experiment.rollout": "mine & yours",
        "experiment.entrypoint": "other.py",
        "experiment.dataset": "second",
        "experiment.model_path": "tiny/other",
        f"{room}.limit" if room == "evaluation" else "training.lr": "7",
    }
    form = {"html": True, "config": "[experiment", "action": "check"}
    answer = browser("max").post(f"/acme/{room}/new", settings=urlencode(chosen), **form)
    assert answer.status_code == 400
    shown = html.unescape(answer.text)
    for name in ("rollout", "dataset"):
        assert f"selected>{chosen[f'experiment.{name}']}</option>" in shown
    for name in chosen.keys() - {"experiment.rollout", "experiment.dataset"}:
        assert re.search(f'name="{name}"[^>]* value="{chosen[name]}"', shown), name
    assert f'name="settings" value="{urlencode(chosen)}"' in shown
    bare = browser("max").post(f"/acme/{room}/new", **form).text
    assert 'name="experiment.entrypoint" value="main.py"' in bare


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (("n = 3", "n = "), 8, "Invalid TOML"),
        (("n = 3", "nn = 3"), 8, "Unrecognized key"),
        (("n = 3", "n = 0"), 8, "evaluation.n: must be >= 1"),
        (('"sums"', '"gone"'), 5, "Dataset not found: gone"),
        (('"echo"', '"nowhere"'), 2, "Rollout not found: nowhere"),
        (("tiny/model", "tiny/modle"), 4, "there is no provider"),
        (("required = []", 'required = ["NO_SUCH"]'), None, "Secret(s) not found: NO_SUCH"),
        (('dataset = "sums"', 'dataset = "sums"\nbranch = "nope"'), None, "branch nope was not found"),
    ],
)
def test_problems_name_their_line(
    browser: Callable[[str], Any],
    platform: Platform,
    workshop: Any,
    change: tuple[str, str],
    line: int | None,
    says: str,
) -> None:
    config = GOOD.replace(*change)
    answer = browser("max").post("/acme/evaluation/new", config=config, key="k")
    assert answer.status_code == 400, answer.text
    body = answer.json()
    assert says in body["problems"][0]["message"]
    assert body["problems"][0]["line"] == line
    assert body["config"] == config
    assert runs(platform) == []


def test_problems_of_every_stage_come_at_once() -> None:
    text = GOOD.replace('dataset = "sums"\n', "").replace("n = 3", "n = 0\nbad = 1").replace("NOTE", "note")
    with pytest.raises(BadConfig) as caught:
        read_config("eval", text)
    assert [(problem.line, problem.message.partition(":")[0]) for problem in caught.value.problems] == [
        (1, "Missing 'dataset' in [experiment] of eval.toml, line 1"),
        (8, "evaluation.bad"),
        (11, "env.note"),
        (7, "evaluation.n"),
    ]


def test_every_value_survives_the_way_through_the_text() -> None:
    experiment = {"rollout": 'a"b\\c', "entrypoint": "m.py", "model_path": "x\x7f\u2028ä", "dataset": "d"}
    config = {
        "experiment": experiment,
        "evaluation": {"n": 1, "limit": 7, "pass_threshold": 1e-07},
        "advanced": {"seed": 3, "policy": {"temperature": 0.5}},
    }
    run = Run(kind="eval", config=config, env={"A": "x\ny\t'\"", "B_1": ""}, secret_names=["K"])
    _, body = read_config("eval", config_of(run))
    assert body["experiment_config"] == experiment
    assert body["evaluation_config"] == {"limit": 7, "pass_threshold": 1e-07}
    assert body["advanced_config"] == {"seed": 3, "policy": {"temperature": 0.5}}
    assert body["env_config"] == run.env
    assert body["secrets"] == {"required": ["K"]}
    assert isinstance(
        validate_submission("eval", body), list
    )  # DEL in a name: refused, and not lost on the way


def test_a_local_evaluation_is_not_run_again_here(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max = browser("max")
    address = max.post("/acme/evaluation/new", config=GOOD, key="k").headers["location"]
    with platform.database.write() as session:
        run = session.scalars(select(Run)).one()
        run.local_run = {"eval_run_name": "mine"}
    assert max.get(f"/acme/evaluation/new?from={run.id}").status_code == 409
    assert "Run again" not in max.get(address).text


def test_a_config_outlives_a_session_that_ended(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max, page = browser("max"), "/acme/evaluation/new"
    text = GOOD + '# mine, by hand: "quoted" & <b>bold</b> é\n'
    with platform.database.write() as session:
        sessions.sign_out(session, max.client.cookies[sessions.COOKIE])
        session.get_one(User, workshop.town.max.user.id).password_hash = hash_password("a long password")
    sent = max.post(page, html=True, config=text, settings="evaluation.n=3")
    assert sent.status_code == 401

    def fields(page: str) -> dict[str, str]:
        found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
        return {name: html.unescape(value) for name, value in found}

    login = {"email": "max@example.com", "html": True, **fields(sent.text)}
    refused = max.post("/sign-in", password="not this one", **login)
    assert refused.status_code == 401
    assert fields(refused.text) == fields(sent.text)
    signed = max.post("/sign-in", password="a long password", **login)
    assert 'action="/acme/evaluation/new"' in signed.text
    assert set(fields(signed.text)) == {"config", "settings"}
    back = max.client.post(page, data=fields(signed.text), headers={"Accept": "text/html"})
    assert back.status_code == 200
    assert html.escape(text, quote=False) in html.escape(html.unescape(back.text), quote=False)
    assert 'name="evaluation.n" value="3"' in back.text
    assert runs(platform) == []
    again = {**fields(back.text), "config": text}
    done = max.client.post(page, data=again, headers={"Accept": "text/html"}, follow_redirects=False)
    assert done.status_code == 303
    assert len(runs(platform)) == 1


def test_a_form_of_another_session_is_shown_again_and_not_submitted(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max, page = browser("max"), "/acme/evaluation/new"
    stale = {"csrf": "of another session", "config": GOOD}
    shown = max.client.post(page, data=stale, headers={"Accept": "text/html"})
    assert shown.status_code == 200
    assert "nothing was submitted yet" in shown.text
    assert max.client.post(page, data=stale, headers={"Accept": "application/json"}).status_code == 403
    assert runs(platform) == []
