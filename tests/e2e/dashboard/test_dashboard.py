"""What the dashboard does: follows runs, stops, deploys, filters, remembers the theme, and works without script."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from osmosis_platform.accounts import sessions
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.service import finish, log
from osmosis_platform.runs.status import transition

MAX_SCRIPT_BYTES = 60_000


def test_a_run_is_followed_without_reloading(visit: Callable[..., Any], site: Any) -> None:
    run_id = site.add_run("followed", "train", "running", current_step=2, total_steps=4)
    for step in range(3):
        site.add_point(run_id, step, 0.1 * step)
    with site.platform.database.write() as session:
        session.add(
            LoraModel(
                workspace_id=site.ids["workspace"],
                name="followed-step-2",
                base_model_id=site.ids["base"],
                run_id=run_id,
                step=2,
                blob_sha256="0" * 64,
            )
        )
    visitor = visit()
    page = visitor.sign_in()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visitor.go(f"/acme/training/{run_id}")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "following")
    chart = page.locator('.chart[data-key="rollout/raw_reward"]')
    expect(chart).to_have_attribute("data-points", "3")
    expect(chart.locator("canvas")).to_be_visible()
    page.evaluate("window.sameDocument = true")
    page.get_by_role("button", name="Deploy followed-step-2").focus()

    site.add_point(run_id, 3, 0.9)
    with site.platform.database.write() as session:
        run = session.get_one(Run, run_id)
        run.current_step = 3
        log(session, run_id, f"fresh {site.hostile}", step="train")
    expect(chart).to_have_attribute("data-points", "4")
    expect(page.locator(".chart-head", has_text="Training Reward")).to_contain_text("step 3 0.9")
    expect(page.get_by_role("log")).to_contain_text("fresh <script>")
    expect(page.locator("#summary")).to_contain_text("3 / 4 steps")
    expect(page.get_by_role("button", name="Deploy followed-step-2")).to_be_focused()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()

    with site.platform.database.write() as session:
        finish(session, session.get_one(Run, run_id), "crashed", error="out of memory")
        log(session, run_id, "the end")
    expect(page.locator("#summary .badge")).to_have_text("crashed")
    expect(page.get_by_role("alert")).to_contain_text("out of memory")
    expect(page.get_by_role("log")).to_contain_text("the end")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator("#announcement")).to_have_text("Status: crashed")
    assert page.evaluate("window.sameDocument"), "the page was loaded anew"
    assert page.evaluate("window.owned") is None
    assert 1 <= sum("/events" in url for url in asked) <= 3
    assert all("/events" in url or "part=" in url or "?" not in url or "?v=" in url for url in asked), asked


def test_lists_and_home_follow_without_reloading(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    visitor.sign_in()
    run_id = site.add_run("in-the-lists", "eval", "pending")
    opened = []
    for path in ("/acme", "/acme/evaluation"):
        window = visitor.another()
        page = window.go(path)
        expect(page.locator("[data-live]")).to_have_attribute("data-state", "following")
        page.evaluate("window.sameDocument = true")
        opened.append(page)
    datasets = visitor.another().go("/acme/datasets")
    expect(datasets.locator("[data-live]")).to_have_attribute("data-state", "following")
    row = opened[1].get_by_role("row", name="in-the-lists")
    row.get_by_role("link").focus()
    with site.platform.database.write() as session:
        run = session.get_one(Run, run_id)
        transition(run, "running")
        run.total_runs = 3
        session.get_one(Dataset, site.ids["dataset"]).row_count = 513
    for page in opened:
        expect(page.get_by_role("row", name="in-the-lists")).to_contain_text("3 attempts")
        assert page.evaluate("window.sameDocument"), "the page was loaded anew"
    expect(row.get_by_role("link")).to_be_focused()
    expect(datasets.get_by_role("row", name=site.long)).to_contain_text("513")
    with site.platform.database.write() as session:
        finish(session, session.get_one(Run, run_id), "failed", error="no more")


def test_a_page_that_slept_or_was_cut_off_catches_up(visit: Callable[..., Any], site: Any) -> None:
    run_id = site.add_run("asleep", "train", "running", current_step=1, total_steps=9)
    visitor = visit()
    page = visitor.sign_in()
    visitor.go(f"/acme/training/{run_id}")
    live = page.locator("[data-live]")
    expect(live).to_have_attribute("data-state", "following")
    # In the background: no connection is held, and what happens meanwhile is not heard of.
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true}); document.dispatchEvent(new Event('visibilitychange'))"
    )
    expect(live).to_have_attribute("data-state", "waiting")
    with site.platform.database.write() as session:
        session.get_one(Run, run_id).current_step = 5
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect(live).to_have_attribute("data-state", "following")
    expect(page.locator("#summary")).to_contain_text("5 / 9 steps")
    with site.platform.database.write() as session:
        finish(session, session.get_one(Run, run_id), "crashed", error="over")


def test_following_ends_with_the_session(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    page = visitor.sign_in()
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "following")
    cookie = next(c["value"] for c in page.context.cookies() if c["name"] == sessions.COOKIE)
    with site.platform.database.write() as session:
        sessions.sign_out(session, cookie)
    page.wait_for_url("**/sign-in?next=/acme")
    assert visitor.problems.pop(), "a refused stream is a 401"
    visitor.problems.clear()


def test_a_cursor_shows_the_same_step_in_every_chart(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    visitor.sign_in()
    page = visitor.go(f"/acme/training/{site.ids['train-running']}")
    page.locator(".more-charts summary").press("Enter")
    heads = page.locator(".chart-head")
    expect(heads).to_have_count(3)
    expect(heads.nth(2)).to_contain_text("step 11")
    expect(heads.nth(0)).to_contain_text("step 11")
    box = page.locator(".chart .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 5 / 11, box["y"] + 40)
    for number in range(3):
        expect(heads.nth(number)).to_contain_text("step 5")


def test_silence_of_the_platform_is_said_and_survived(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    page = visitor.sign_in()
    run_id = site.ids["train-running"]
    visitor.go(f"/acme/training/{run_id}")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "following")
    page.route("**/*part=live*", lambda route: route.abort())
    with site.platform.database.write() as session:
        log(session, run_id, "unheard")
    expect(page.locator("#trouble")).to_be_visible()
    page.unroute("**/*part=live*")
    expect(page.locator("#trouble")).to_be_hidden()
    expect(page.get_by_role("log")).to_contain_text("unheard")
    visitor.problems = [p for p in visitor.problems if "part=live" not in p and "ERR_FAILED" not in p]


def test_stop_and_deploy(visit: Callable[..., Any], site: Any) -> None:
    run_id = site.add_run("to-stop", "train", "running", current_step=1, total_steps=4)
    visitor = visit()
    page = visitor.sign_in()
    visitor.go(f"/acme/training/{run_id}")
    questions: list[str] = []
    page.once("dialog", lambda dialog: (questions.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Stop").press("Enter")
    assert "to-stop" in questions[0]
    with site.platform.database.read() as session:
        assert session.get_one(Run, run_id).stop_requested_at is None
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Stop").press("Enter")
    expect(page.get_by_role("button", name="Stopping…")).to_be_disabled()
    with site.platform.database.read() as session:
        assert session.get_one(Run, run_id).stop_requested_at is not None

    visitor.go("/acme/models")
    row = page.get_by_role("row", name=f"{site.long}-step-10")
    row.get_by_role("button", name="Deploy").press("Enter")
    expect(row.locator(".badge")).to_have_text("active")
    expect(page.locator(".head")).to_contain_text("1 of")
    row.get_by_role("link", name=f"{site.long}-step-10").click()
    expect(page.locator("#call-curl")).to_contain_text(f"osmosis/tiny-multiply:{site.long}-step-10")
    expect(page.get_by_role("link", name="Try it")).to_be_visible()
    page.go_back()
    row.get_by_role("button", name="Undeploy").click()
    expect(row.locator(".badge")).to_have_text("inactive")


def test_the_theme_is_remembered(visit: Callable[..., Any]) -> None:
    page = visit(theme="light").sign_in()
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(back)
    page.get_by_role("button", name="Dark theme").press("Enter")
    dark = page.evaluate(back)
    assert dark != light
    page.get_by_role("link", name="Training runs").first.click()
    page.wait_for_url("**/training")
    assert page.evaluate(back) == dark
    page.get_by_role("button", name="Light theme").click()
    page.reload()
    assert page.evaluate(back) == light


def test_attempts_are_chosen_in_the_address(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    page = visitor.sign_in()
    visitor.go(f"/acme/evaluation/{site.ids['eval-done']}")
    expect(page.locator("#attempts .pager")).to_contain_text("1–50 of 128 attempts")
    page.get_by_label("Status").select_option("failed")
    page.get_by_role("button", name="Filter").press("Enter")
    page.wait_for_url("**status=failed**")
    assert set(page.locator("#attempts .badge").all_inner_texts()) == {"failed"}
    expect(page.get_by_label("Status")).to_have_value("failed")
    page.get_by_label("Status").select_option("skipped")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="Show all attempts").click()
    page.get_by_role("link", name="Row 0, try 1").click()
    expect(page.locator(".turn")).to_have_count(4)
    expect(page.get_by_text("I should multiply.")).to_be_visible()
    expect(page.locator(".tool.result")).to_contain_text("Result of multiply")


def test_pages_work_without_script(visit: Callable[..., Any], site: Any) -> None:
    waiting = site.add_run("stop-me-plainly", "train", "pending")
    visitor = visit(script=False)
    page = visitor.sign_in()
    expect(page.locator("[data-toggle-theme]")).to_be_hidden()
    visitor.go(f"/acme/training/{site.ids['train-running']}")
    expect(page.locator("[data-charts]")).to_be_hidden()
    page.locator("summary", has_text="Metrics as numbers").press("Enter")
    expect(page.get_by_role("row", name="Training Reward")).to_contain_text("0.9167")
    expect(page.get_by_role("log")).to_contain_text("step 39/40")
    visitor.go(f"/acme/training/{waiting}")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#summary .badge")).to_have_text("stopped")


def test_times_are_the_workspaces(visit: Callable[..., Any], site: Any) -> None:
    page = visit().sign_in()
    shown = page.locator("tbody time").first
    moment = page.evaluate(
        "(iso) => new Date(iso).toLocaleString('sv', {timeZone: 'Asia/Tokyo'}).slice(0, 16)",
        shown.get_attribute("datetime"),
    )
    assert shown.inner_text() == moment
    expect(page.get_by_text("Times in Asia/Tokyo")).to_be_visible()


def test_scripts_are_small_and_come_from_here(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    sizes: dict[str, int] = {}
    page = visitor.sign_in()
    page.on(
        "response",
        lambda r: (
            sizes.update({r.url: len(gzip.compress(r.body()))})
            if r.request.resource_type == "script"
            else None
        ),
    )
    response = page.goto(f"{site.url}/acme/training/{site.ids['train-running']}")
    page.wait_for_load_state("networkidle")
    assert len(sizes) == 5
    assert sum(sizes.values()) < MAX_SCRIPT_BYTES
    assert response is not None
    assert all(url.startswith(site.url) for url in sizes)
    assert "unsafe" not in response.headers["content-security-policy"]


def test_a_config_typed_by_hand_comes_back_after_signing_in_again(
    visit: Callable[..., Any], site: Any
) -> None:
    visitor = visit()
    page = visitor.sign_in()
    page.goto(f"{site.url}/acme/evaluation/new")
    config = page.get_by_label("Config in TOML")
    typed = '# "mine" & <b>by hand</b>, é\n' + config.input_value()
    config.fill(typed)
    page.context.clear_cookies()
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_role("status")).to_contain_text("Nothing is lost")
    visitor.problems = [problem for problem in visitor.problems if "401" not in problem]
    page.get_by_label("E-mail").fill(site.email)
    page.get_by_label("Password").fill(site.password)
    page.get_by_role("button", name="Sign in").press("Enter")
    expect(page.get_by_role("heading", name="New evaluation run")).to_be_visible()
    expect(page.get_by_text("nothing was submitted yet")).to_be_visible()
    expect(config).to_have_value(typed)
