"""Pages answer people with HTML and scripts with JSON, to members only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.service import set_password
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.runs.models import Run, RunAttempt, RunMetric, RunSample
from osmosis_platform.runs.service import log
from osmosis_platform.storage.blobs import record_blob

HTML = {"Accept": "text/html"}
PASSWORD = "correct horse battery"


@pytest.fixture
def signed_in(client: httpx.Client, platform: Platform, town: Any) -> Callable[[str], httpx.Client]:
    with platform.database.write() as session:
        for person in (town.max, town.eve):
            set_password(session.get_one(User, person.user.id), PASSWORD)

    def enter(name: str) -> httpx.Client:
        client.cookies.clear()
        answer = client.post(
            "/sign-in", data={"email": f"{name}@example.com", "password": PASSWORD}, follow_redirects=False
        )
        assert answer.status_code == 303
        return client

    return enter


@pytest.fixture
def runs(platform: Platform, town: Any) -> dict[str, str]:
    with platform.database.write() as session:
        dataset = Dataset(
            workspace_id=town.acme.id, name="<b>train</b>", extension="jsonl", file_size=10, status="uploaded",
            creator_id=town.max.user.id, row_count=4, preview=[{"user_prompt": "<script>alert(1)</script>"}],
        )  # fmt: skip
        session.add(dataset)
        session.flush()
        made = {}
        for kind, status in (("eval", "finished"), ("train", "running"), ("train", "crashed")):
            run = Run(
                workspace_id=town.acme.id, kind=kind, name=f"{kind}-{status}", status=status, creator_id=town.max.user.id,
                rollout_name="calc", entrypoint="main.py", commit_sha="0" * 40, model_path="osmosis/tiny-multiply",
                dataset_id=dataset.id, config={"experiment": {}, "evaluation": {"n": 2}, "training": {"lr": 0.002}},
                started_at=utc_now(), current_step=3, total_steps=10, total_runs=8, sampled_rows=4, reward=0.5,
                error="out of memory" if status == "crashed" else None,
            )  # fmt: skip
            session.add(run)
            session.flush()
            made[run.name] = run.id
        for step, value in enumerate([0.1, 0.4, 0.7]):
            session.add(
                RunMetric(
                    run_id=made["train-running"],
                    key="rollout/raw_reward",
                    step=step,
                    value=value,
                    timestamp=utc_now(),
                )
            )
        session.add(
            RunAttempt(
                run_id=made["eval-finished"],
                row_index=0,
                run_index=1,
                rollout_id="r",
                status="success",
                reward=1.0,
            )
        )
    return {**made, "dataset": dataset.id}


PAGES = [
    "/acme", "/acme/datasets", "/acme/datasets/{dataset}", "/acme/rollouts", "/acme/evaluation", "/acme/training",
    "/acme/evaluation/{eval-finished}", "/acme/training/{train-running}", "/acme/training/{train-crashed}", "/acme/models", "/acme/secrets",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_page_answers_html_and_json(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], page: str
) -> None:
    client = signed_in("max")
    url = re.sub(r"\{(.+?)\}", lambda m: runs[m[1]], page)
    html = client.get(url, headers=HTML)
    assert html.status_code == 200, html.text
    assert html.headers["content-type"].startswith("text/html")
    assert "<script>alert" not in html.text
    assert "<b>train" not in html.text
    assert re.search(r"<h1>.+</h1>", html.text)
    data = client.get(url, headers={"Accept": "application/json"})
    assert isinstance(json.loads(data.text), dict)


def test_a_training_says_how_far_its_reward_has_come(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str]
) -> None:
    client = signed_in("max")
    for name, improvement in (("train-running", "+0.60"), ("train-crashed", "–")):
        page = client.get(f"/acme/training/{runs[name]}", headers=HTML).text
        card = page.partition('<div class="label">Improvement</div>')[2][:60]
        assert card.startswith(f'<div class="value">{improvement}</div>')


@pytest.mark.parametrize("page", PAGES)
def test_outsiders_cannot_tell_that_a_page_exists(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], page: str
) -> None:
    client = signed_in("eve")
    answer = client.get(re.sub(r"\{(.+?)\}", lambda m: runs[m[1]], page), headers=HTML)
    assert answer.status_code == 404
    assert "calc" not in answer.text


def test_without_session_a_browser_is_sent_to_sign_in_and_back(client: httpx.Client, town: Any) -> None:
    answer = client.get("/acme/models", headers=HTML, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=/acme/models")
    assert client.get("/acme/models", headers={"Accept": "application/json"}).status_code == 401
    page = client.get("/sign-in?next=//evil.example", headers=HTML).text
    assert 'name="next" value="/"' in page


def test_wrong_password_says_so_without_saying_which(client: httpx.Client, town: Any) -> None:
    answer = client.post("/sign-in", data={"email": "max@example.com", "password": "nope nope nope"})
    assert answer.status_code == 401
    assert "e-mail address or the password is wrong" in answer.text


def test_forms_need_their_token(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], platform: Platform
) -> None:
    client = signed_in("max")
    url = f"/acme/training/{runs['train-running']}"
    assert client.post(f"{url}/stop", data={"csrf": "guess"}).status_code == 403
    token = re.search(r'name="csrf" value="([^"]+)"', client.get(url, headers=HTML).text)
    assert token is not None
    assert client.post(f"{url}/stop", data={"csrf": token[1]}, follow_redirects=False).status_code == 303
    with platform.database.read() as session:
        assert session.get_one(Run, runs["train-running"]).stop_requested_at is not None


def test_live_parts_end_when_the_run_has_ended(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str]
) -> None:
    client = signed_in("max")
    assert client.get(f"/acme/training/{runs['train-running']}?part=live").json()["final"] is False
    assert client.get(f"/acme/evaluation/{runs['eval-finished']}?part=live").json()["final"] is True
    charts = client.get(f"/acme/training/{runs['train-running']}?part=charts").json()
    assert [point[:2] for point in charts["series"][0]["points"]] == [[0, 0.1], [1, 0.4], [2, 0.7]]
    assert charts["final"] is False


def test_attempts_are_filtered_by_status_and_reward(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], platform: Platform
) -> None:
    with platform.database.write() as session:
        for row, (status, reward) in enumerate(
            [("success", 0.2), ("failed", None), ("success", 1.0)], start=1
        ):
            session.add(
                RunAttempt(
                    run_id=runs["eval-finished"], row_index=row, run_index=0, rollout_id=f"r{row}", status=status,
                    reward=reward,
                )
            )  # fmt: skip
    client = signed_in("max")

    def rows(query: str) -> list[int]:
        url = f"/acme/evaluation/{runs['eval-finished']}?format=json&{query}"
        return [attempt["row_index"] for attempt in client.get(url).json()["attempts"]]

    assert rows("") == [0, 1, 2, 3]
    assert rows("status=failed") == [2]
    assert rows("reward=passed") == [0, 3]
    assert rows("status=success&reward=below") == [1]
    assert rows("reward=none") == [2]
    histogram = client.get(f"/acme/evaluation/{runs['eval-finished']}?format=json").json()["histogram"]
    assert [bin["count"] for bin in histogram] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 2]


def test_the_log_is_read_backwards_and_followed(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], platform: Platform
) -> None:
    with platform.database.write() as session:
        for number in range(250):
            log(session, runs["train-running"], f"line-{number}")
    client = signed_in("max")
    url = f"/acme/training/{runs['train-running']}"
    newest = client.get(f"{url}?format=json").json()["logs"]
    assert [line["message"] for line in newest] == [f"line-{n}" for n in range(50, 250)]
    older = client.get(f"{url}?format=json&before={newest[0]['sequence']}").json()["logs"]
    assert [line["message"] for line in older] == [f"line-{n}" for n in range(50)]
    live = client.get(f"{url}?part=live&after={newest[-2]['sequence']}").json()
    assert "line-249" in live["lines"]
    assert "line-248" not in live["lines"]
    assert live["sequence"] == newest[-1]["sequence"]


def test_another_site_cannot_sign_a_browser_in(client: httpx.Client, town: Any) -> None:
    answer = client.post(
        "/sign-in",
        data={"email": "max@example.com", "password": PASSWORD},
        headers={"Origin": "http://evil.example"},
        follow_redirects=False,
    )
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_training_trajectories_show_every_sampled_token(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], platform: Platform
) -> None:
    call = {
        "index": 0,
        "parent": None,
        "branch": "root",
        "tool_set": 0,
        "messages": [
            {"role": "system", "content": "Use the tool."},
            {"role": "user", "content": [{"type": "text", "text": "2 x 3? <i>"}]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "function": {"name": "multiply", "arguments": '{"a": 2}'}}],
            },
        ],
        "context_tokens": 40,
        "tokens": [
            {"id": 7, "text": "<script>", "logprob": -0.01},
            {"id": 8, "text": "\n", "logprob": -6.0},
        ],
        "policy_version": 3,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 64,
        "finish_reason": "stop",
        "parse_outcome": "tool_calls",
        "cached_tokens": 12,
        "started_s": 0.0,
        "seconds": 0.25,
    }
    later = {**call, "index": 1, "parent": 0, "branch": "extended"}
    later["messages"] = [
        {"role": "tool", "name": "multiply", "content": "6"},
        {"role": "assistant", "content": "It is 6.", "tool_calls": None},
    ]
    document = {
        "rollout_id": "r1", "sampled_tokens": 4, "total_tokens": 48, "branches": {"root": 1}, "outcomes": {"text": 1},
        "retries": 0, "refused": {}, "tool_sets": [[{"type": "function", "function": {"name": "multiply"}}]],
        "calls": [call, later], "row_index": 5, "sample_index": 1, "outcome": "graded", "reason": None, "reward": 1.0,
        "advantage": 0.25,
    }  # fmt: skip
    with platform.blobs.writer() as writer:
        writer.write(json.dumps(document).encode())
    run_id = runs["train-running"]
    with platform.database.write() as session:
        record_blob(session, writer.stored)
        for step in (2, 4):
            session.add(
                RunSample(
                    run_id=run_id,
                    step=step,
                    row_index=5,
                    sample_index=1,
                    rollout_id="r1",
                    reward=1.0,
                    advantage=0.25,
                    blob_sha256=writer.stored.sha256,
                )
            )
    client = signed_in("max")
    listed = client.get(f"/acme/training/{run_id}", headers=HTML).text
    assert f"/acme/training/{run_id}/samples/4/5/1" in listed
    earlier = client.get(f"/acme/training/{run_id}?step=2&format=json").json()
    assert (earlier["sample_steps"], earlier["sample_step"]) == ([4, 2], 2)
    address = f"/acme/training/{run_id}/samples/4/5/1"
    page = client.get(address, headers=HTML).text
    assert "&lt;script&gt;" in page
    assert "<script>" not in page.split("<main", 1)[1]
    for part in (
        "log-probability -0.01",
        "2 x 3? &lt;i&gt;",
        "Calls <code>multiply</code>",
        "It is 6.",
        "Call 2",
    ):
        assert part in page
    data = client.get(f"{address}?format=json").json()
    assert [token["level"] for token in data["calls"][0]["tokens"]] == [0, 4]
    assert data["calls"][1]["steps"][0]["results"] == [{"tool": "multiply", "content": "6"}]
    assert client.get(f"{address}?offset=1&format=json").json()["calls"][0]["index"] == 1
    assert client.get(f"/acme/training/{run_id}/samples/4/5/2").status_code == 404
    assert signed_in("eve").get(address).status_code == 404


@pytest.mark.usefixtures("only_sqlite")
def test_advice_is_found_by_its_index(platform: Platform) -> None:
    with platform.database.read() as session:
        plan = session.connection().exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT * FROM log_lines WHERE owner_id = 'x' AND step = 'advice' ORDER BY sequence DESC"
        )
        assert "ix_log_lines_advice" in str(plan.all())


def test_advice_of_a_training_is_shown_newest_first(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], platform: Platform
) -> None:
    run_id = runs["train-running"]
    with platform.database.write() as session:
        log(session, run_id, "step 1/10", step="train")
        for text in ("lower the rate", "<b>longer</b> answers"):
            log(session, run_id, text, level="warning", step="advice")
    client = signed_in("max")
    data = client.get(f"/acme/training/{run_id}?format=json").json()
    assert [piece["message"] for piece in data["advice"]] == ["<b>longer</b> answers", "lower the rate"]
    page = client.get(f"/acme/training/{run_id}", headers=HTML).text
    assert "&lt;b&gt;longer" in page.split("<h2>Advice</h2>")[1]
    assert client.get(f"/acme/evaluation/{runs['eval-finished']}?format=json").json()["advice"] == []


def test_lists_of_runs_are_searched_filtered_and_sorted_by_the_address(
    signed_in: Callable[[str], httpx.Client], runs: dict[str, str], platform: Platform, town: Any
) -> None:
    with platform.database.write() as session:
        first = session.get_one(Run, runs["train-running"])
        for number in range(60):
            session.add(
                Run(
                    workspace_id=town.acme.id,
                    kind="train",
                    name=f"calm_{number:02}",
                    status="finished",
                    creator_id=town.max.user.id,
                    rollout_name="calc" if number % 2 else "other",
                    entrypoint="main.py",
                    commit_sha="0" * 40,
                    model_path="a/b",
                    dataset_id=first.dataset_id if number < 10 else None,
                    config={"experiment": {}, "training": {}},
                    reward=number / 100 if number else None,
                )
            )
    client = signed_in("max")

    def names(query: str) -> list[str]:
        data = client.get(f"/acme/training?format=json&{query}").json()
        return [run["name"] for run in data["runs"]]

    assert names("q=CALM_0&sort=name") == [f"calm_{number:02}" for number in range(10)]
    assert names("q=calm%25") == []  # a wildcard is a letter like any other
    assert names("status=crashed") == ["train-crashed"]
    assert names("rollout=other&sort=reward")[:2] == ["calm_58", "calm_56"]
    assert names("rollout=other&sort=reward")[-1] == "calm_00"  # without a reward
    assert sorted(names("model=a/b&dataset=%3Cb%3Etrain%3C/b%3E")) == [f"calm_{n:02}" for n in range(10)]
    page = client.get("/acme/training?status=finished&sort=name", headers=HTML).text
    assert "1–50 of 60 runs" in page
    assert 'href="/acme/training?status=finished&amp;sort=name&amp;offset=50"' in page
    assert '<option value="finished" selected>' in page
    assert "No run matches" in client.get("/acme/training?q=nothing", headers=HTML).text
    assert client.get("/acme/training?sort=best").status_code in (400, 422)
    assert client.get("/acme/evaluation?q=finished&format=json").json()["filter"]["query"] == "q=finished&"
