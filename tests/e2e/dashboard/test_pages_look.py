"""How every page looks and is reached: axe-core's rules, keyboard, both themes, phones, hostile text. Screenshots go to `out/dashboard`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

DESKTOP = 1440
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

# Text against what is really behind it, for every piece of text that can be seen (WCAG 2.2, 1.4.3).
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const luminance = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (element) => { const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]); };
  const bad = []; let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest('.unseen, .skip, option, script, style, noscript') || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), back = behind(element);
    const ink = over(rgba(element instanceof SVGElement ? style.fill : style.color), back);
    const [low, high] = [luminance(ink), luminance(back)].sort((a, b) => a - b);
    seen += 1;
    if ((high + .05) / (low + .05) < 4.5) bad.push(`${((high + .05) / (low + .05)).toFixed(2)} ${node.data.trim().slice(0, 40)}`);
  }
  return {seen, bad};
}"""

# Whatever sticks out of the page, unless it is inside something that scrolls by itself.
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth, bad = [];
  if (document.documentElement.scrollWidth > width) bad.push(`page ${document.documentElement.scrollWidth} > ${width}`);
  for (const e of document.body.querySelectorAll('*')) {
    if (!e.checkVisibility() || e.closest('pre, .log, .scroll, .unseen, .skip, thead, .chart')) continue;
    if (e.getBoundingClientRect().right > width + 1) bad.push(`${e.tagName} ${e.textContent.trim().slice(0, 40)}`);
  }
  return bad;
}"""

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
# The rules of WCAG 2.2 A and AA, and best practices. axe-core is put in by the browser's debugger, which no policy of the page stops.
# Of all rules only that of contrast sees colours, so the second theme needs no other.
RUN_AXE = """async (rules) => {
  const found = await axe.run(document, {resultTypes: ['violations'], ...(rules && {runOnly: rules})});
  return found.violations.map((v) => `axe ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 140)).join(' | ')}`);
}"""

WATCH_FOCUS = """() => {
  window.reached = new Set(); window.invisible = [];
  document.activeElement.blur(); window.scrollTo(0, 0);
  document.addEventListener('focusin', ({target}) => {
    const style = getComputedStyle(target);
    reached.add(target);
    if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) invisible.push(target.outerHTML.slice(0, 80));
  });
  return document.querySelectorAll(INTERACTIVE).length;
}""".replace("INTERACTIVE", "'a[href], button, input, select, summary, [tabindex]'")

UNREACHED = """() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((e) => !e.disabled && e.type !== 'hidden' && e.checkVisibility() && !reached.has(e)).map((e) => e.outerHTML.slice(0, 120))"""


def test_sign_in_with_the_keyboard_alone(visit: Callable[..., Any], site: Any) -> None:
    visitor = visit()
    page = visitor.go("/acme/models")
    expect(page.locator("#email")).to_be_focused()
    page.keyboard.type(site.email)
    page.keyboard.press("Tab")
    page.keyboard.type("not the password")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    assert visitor.problems.pop(), "the refused sign-in is a 401"
    visitor.problems.clear()
    expect(page.locator("#password")).to_be_focused()
    page.keyboard.type(site.password)
    page.keyboard.press("Tab")
    expect(page.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/acme/models")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("width", [1440, pytest.param(1024, marks=pytest.mark.slow), 390])
def test_every_page_in_both_themes(
    visit: Callable[..., Any], site: Any, pytestconfig: pytest.Config, width: int
) -> None:
    folder = Path(pytestconfig.rootpath) / "out" / "dashboard"
    folder.mkdir(parents=True, exist_ok=True)
    visitor = visit(width)
    visitor.go("/sign-in")
    found = _looks(visitor.page, "sign-in", width, folder)
    visitor.sign_in()
    for name, path in site.pages().items():
        page = visitor.go(path)
        if name == "error":
            visitor.problems = [p for p in visitor.problems if "404" not in p]
        found += _looks(page, name, width, folder)
        if width == DESKTOP:
            found += [f"{name}: {what}" for what in _tab_through(page)]
    assert found == [], "\n".join(found)


def _looks(page: Page, name: str, width: int, folder: Path) -> list[str]:
    """What is wrong with a page: structure, size, contrast in both themes, hostile text."""
    found = []
    if page.locator("[data-charts]").count():
        expect(page.locator("[data-charts]")).not_to_have_attribute("aria-busy", "true")
    if width == DESKTOP:
        page.evaluate(AXE)
    for theme in THEMES if width != 1024 else THEMES[:1]:
        page.emulate_media(color_scheme=theme)
        if width == DESKTOP:
            found += [
                f"{theme} {violation}"
                for violation in page.evaluate(RUN_AXE, None if theme == "light" else ["color-contrast"])
            ]
        contrast = page.evaluate(CONTRAST)
        assert contrast["seen"] >= 3
        found += [f"{theme} contrast {bad}" for bad in contrast["bad"]]
        page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
    found += page.evaluate(OVERFLOW)
    if page.locator("h1").count() != 1 or page.get_by_role("main").count() != 1 or not page.title():
        found.append("a page has one h1, one main and a title")
    if page.locator(".shell").count() and page.get_by_role("navigation", name="Workspace").count() != 1:
        found.append("a page of a workspace has its navigation")
    if page.evaluate("window.owned") is not None or page.locator("img[src='/owned']").count():
        found.append("text was run")
    if any(sign in page.content() for sign in ("\u202e", "\x1b")):
        found.append("control characters are shown")
    return [f"{name} {width}: {what}" for what in found]


def _tab_through(page: Page) -> list[str]:
    """What cannot be reached with Tab, or does not show that it was."""
    for _ in range(page.evaluate(WATCH_FOCUS) + 3):
        page.keyboard.press("Tab")
    return [f"unreached {e}" for e in page.evaluate(UNREACHED)] + [
        f"no focus ring {e}" for e in page.evaluate("invisible")
    ]
