"""Settings in a real browser: somebody is invited and joins without script; a new key can be copied and revoked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect


def test_an_invited_person_joins_without_script(visit: Callable[..., Any], site: Any) -> None:
    page = visit(script=False).sign_in()
    page.goto(f"{site.url}/fresh/settings/members")
    page.get_by_label("E-mail address").fill("grace@example.com")
    page.get_by_label("Role", exact=True).select_option("admin")
    page.get_by_role("button", name="Make a link").click()
    link = page.locator("#shown-once").inner_text()
    expect(page.get_by_role("cell", name="grace@example.com", exact=True)).to_be_visible()

    guest = visit(390, script=False).page
    guest.goto(site.url + link[link.index("/invite") :])
    guest.get_by_label("Your name").fill("Grace Hopper")
    guest.get_by_label("New password").fill("correct horse battery")
    guest.get_by_role("button", name="Create account and join").click()
    guest.wait_for_url("**/fresh")
    expect(guest.get_by_text("Grace Hopper, admin")).to_be_visible()

    page.goto(f"{site.url}/fresh/settings/members")
    expect(page.get_by_text("Nobody is invited at the moment.")).to_be_visible()
    page.get_by_role("button", name="Remove Grace Hopper").click()
    expect(page.get_by_role("button", name="Remove Grace Hopper")).to_have_count(0)


def test_a_key_is_copied_and_revoked_after_a_question(visit: Callable[..., Any], site: Any) -> None:
    page = visit().sign_in()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    page.goto(f"{site.url}/fresh/settings/keys")
    page.get_by_label("Name").fill("nightly")
    page.get_by_label("Name").press("Enter")
    key = page.locator("#shown-once").inner_text()
    page.locator("[data-copy]").click()
    expect(page.locator("[data-copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == key

    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Revoke nightly").click()
    expect(page.get_by_role("button", name="Revoke nightly")).to_be_visible()
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.get_by_role("button", name="Revoke nightly").click()
    expect(page.get_by_text("No API keys yet.")).to_be_visible()
    assert len(asked) == 2
    assert "Revoke the key nightly?" in asked[0]
