"""Charts are smoothed, zoomed and laid over each other, and evaluations compared, by mouse and keyboard; the address keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import insert

from osmosis_platform.db.types import utc_now
from osmosis_platform.runs.blocks import BLOCK, refresh_blocks
from osmosis_platform.runs.models import RunMetric

REWARD = '.chart[data-key="rollout/raw_reward"]'
LONG_RUN = 20_000


@pytest.fixture
def shoot(pytestconfig: pytest.Config) -> Callable[[Page, str], None]:
    folder = Path(pytestconfig.rootpath) / "out" / "dashboard"
    folder.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=folder / f"{name}.png", full_page=True) and None


def long_run(site: Any) -> str:
    if "train-long" not in site.ids:
        run_id = site.add_run(
            "train-long", "train", "finished", current_step=LONG_RUN, total_steps=LONG_RUN, reward=0.6
        )
        now = utc_now()
        with site.platform.database.write() as session:
            rows = [
                {
                    "run_id": run_id,
                    "key": "rollout/raw_reward",
                    "step": s,
                    "value": (s * 7919 % 1000) / 1000,
                    "timestamp": now,
                }
                for s in range(LONG_RUN)
            ]
            rows[10_001]["value"] = 25.0
            session.execute(insert(RunMetric), rows)
            refresh_blocks(session, run_id, [("rollout/raw_reward", s) for s in range(0, LONG_RUN, BLOCK)])
    return str(site.ids["train-long"])


def averaged(last: int, keep: float = 0.99) -> float:
    weights = [keep ** (last - step) for step in range(last + 1)]
    return sum(weight * (step * 7919 % 1000) / 1000 for step, weight in enumerate(weights)) / sum(weights)


def test_smoothing_and_zoom_are_kept_in_the_address(visit: Callable[..., Any], site: Any, shoot: Any) -> None:
    visitor = visit()
    visitor.sign_in()
    page = visitor.go(f"/acme/training/{long_run(site)}")
    chart = page.locator(REWARD)
    expect(chart.locator("canvas")).to_be_visible()
    assert int(chart.get_attribute("data-points") or 0) <= 2000
    page.get_by_label("Smoothing").focus()
    page.keyboard.press("End")
    expect(chart).to_have_attribute("data-smooth", "0.99")
    page.wait_for_url("**smooth=0.99")
    shoot(page, "charts-smooth-1440-light")
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.50, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url("**from=**")
    # The part is asked for anew, with every one of its points.
    expect(chart).to_have_attribute("data-points", re.compile(r"^(9\d\d|10\d\d)$"))
    zoomed = chart.get_attribute("data-range") or ""
    low, high = (float(end) for end in zoomed.split())
    assert 9_900 < low < 10_100 < high < 11_100
    page.reload()
    expect(chart).to_have_attribute("data-range", zoomed)
    expect(page.get_by_label("Smoothing")).to_have_value("0.99")
    page.get_by_role("button", name="Show all").press("Enter")
    expect(chart).to_have_attribute("data-range", "0 19999")
    page.get_by_label("From").fill("100")
    page.get_by_label("to", exact=True).fill("200")
    page.keyboard.press("Enter")
    expect(chart).to_have_attribute("data-points", "101")
    # A part of the same curve: its moving average knows what was before.
    expect(chart).to_have_attribute("data-values", " ".join(f"{averaged(step):.4g}" for step in (100, 200)))
    page.get_by_label("Across").select_option("time")
    expect(page.get_by_role("button", name="Show all")).to_be_disabled()
    page.wait_for_url("**x=time**")


def test_trainings_are_laid_over_each_other(visit: Callable[..., Any], site: Any, shoot: Any) -> None:
    other = site.add_run("train-other", "train", "finished", current_step=13, total_steps=13, reward=0.9)
    for step in range(13):
        site.add_point(other, step, 1 - step / 20)
    visitor = visit()
    visitor.sign_in()
    page = visitor.go(f"/acme/training/{site.ids['train-running']}")
    page.get_by_label("Compare with").select_option("train-other")
    page.get_by_role("button", name="Add", exact=True).press("Enter")
    page.wait_for_url("**with=**")
    head = page.locator(".chart-head", has_text="Training Reward")
    expect(head).to_contain_text("A 0.9167 step 11")
    expect(head).to_contain_text("B 0.4 step 12")
    shoot(page, "charts-overlay-1440-light")
    visitor.go("/acme/training")
    for name in ("train-running", "train-other"):
        page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/compare/training?**")
    expect(page.locator(".curves li")).to_have_count(2)
    expect(page.locator(".chart-head", has_text="Training Reward")).to_contain_text("B ")
    expect(page.locator("[data-charts]")).not_to_have_attribute("aria-busy", "true")


def test_evaluations_are_compared_from_the_list_to_the_attempt(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    page = visitor.sign_in()
    visitor.go("/acme/evaluation?sort=oldest")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "following")
    for name in ("eval-done", "eval-better"):
        page.get_by_label(f"Choose {name}", exact=True).press("Space")
    page.get_by_role("button", name="Compare", exact=True).press("Enter")
    page.wait_for_url("**/compare/evaluation?**")
    pairs = page.get_by_role("region", name="Against A").get_by_role("row")
    expect(pairs.nth(1)).to_contain_text("better than A")
    changed = page.locator("table").last.locator("tbody tr")
    expect(changed).to_have_count(26)
    page.get_by_role("link", name="Worse", exact=True).press("Enter")
    page.wait_for_url("**show=worse**")
    expect(page.get_by_text("No row became worse.")).to_be_visible()
    page.get_by_role("link", name="Changed", exact=True).click()
    page.get_by_role("link", name=re.compile(r"^Attempts of row 0 in\s+B$")).click()
    expect(page.locator("#attempts tbody tr")).to_have_count(2)
