"""A workspace's logo: only pictures that browsers draw, of a sensible size, shown to members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osmosis_platform.workspaces.logo import MAX_BYTES

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
PAGE = "/acme/settings"


def send(who: Any, content: bytes, name: str = "logo.png") -> Any:
    return who.client.post(
        f"{PAGE}/logo", data={"csrf": who.csrf}, files={"file": (name, content)}, follow_redirects=False
    )


def test_an_admin_sets_changes_and_removes_it(browser: Callable[[str], Any], town: Any) -> None:
    amy, max = browser("amy"), browser("max")
    assert send(amy, PNG).status_code == 303
    shown = max.get("/acme/logo")
    assert (shown.content, shown.headers["content-type"]) == (PNG, "image/png")
    assert "sandbox" in shown.headers["content-security-policy"]
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert 'src="/acme/logo?v=' in max.get("/acme").text
    assert send(amy, b"\xff\xd8\xff" + bytes(9)).status_code == 303
    assert max.get("/acme/logo").headers["content-type"] == "image/jpeg"
    assert send(amy, b"RIFF\0\0\0\0WEBPVP8 ").status_code == 303
    assert amy.post(f"{PAGE}/logo/remove").status_code == 303
    assert max.get("/acme/logo").status_code == 404
    assert send(max, PNG).status_code == 403
    assert browser("eve").get("/acme/logo").status_code == 404


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
        b"GIF89a",
        b"<html>",
        b"",
        PNG + bytes(MAX_BYTES),
    ],
)
def test_anything_else_is_refused(browser: Callable[[str], Any], town: Any, content: bytes) -> None:
    amy = browser("amy")
    assert send(amy, content, "logo.png").status_code == 400
    assert amy.get("/acme/logo").status_code == 404
