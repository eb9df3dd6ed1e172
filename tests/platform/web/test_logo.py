"""A workspace's logo: only pictures that browsers draw, of a sensible size, shown to members."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_platform.workspaces.logo import MAX_BYTES
from osmosis_platform.workspaces.pictures import MAX_SIDE, BadPicture, picture_type


def chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)


def png(width: int, height: int, *, rows: bytes | None = None, interlaced: int = 0) -> bytes:
    header = chunk(b"IHDR", width.to_bytes(4) + height.to_bytes(4) + bytes([8, 2, 0, 0, interlaced]))
    pixels = bytes(height * (1 + 3 * width)) if rows is None else rows
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def jpeg(width: int, height: int, *, frame: int = 0xC2) -> bytes:
    sizes = height.to_bytes(2) + width.to_bytes(2)
    header = b"\xff" + bytes([frame]) + b"\0\x0b\x08" + sizes + b"\1\1\x11\0"
    scan = b"\xff\xda\0\x08\1\1\0\0\x3f\0" + b"\x12\xff\0\x34\xff\xd0\x56"
    return b"\xff\xd8\xff\xe0\0\4ab" + header + scan + scan + b"\xff\xd9"


def webp(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(
        kind + len(data).to_bytes(4, "little") + data + bytes(len(data) % 2) for kind, data in chunks
    )
    return b"RIFF" + (len(body) + 4).to_bytes(4, "little") + b"WEBP" + body


def canvas(width: int, height: int) -> tuple[bytes, bytes]:
    return b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")


PNG = png(3, 2)
JPEG = jpeg(3, 2)
WEBP = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
LOSSY = base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
LOSSLESS = WEBP[12:16], WEBP[20:33]

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
    assert send(amy, JPEG).status_code == 303
    assert max.get("/acme/logo").headers["content-type"] == "image/jpeg"
    assert send(amy, WEBP).status_code == 303
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
        PNG[:40],
        png(2_000_000_000, 2_000_000_000, rows=b""),
        PNG + bytes(MAX_BYTES),
    ],
)
def test_anything_else_is_refused(browser: Callable[[str], Any], town: Any, content: bytes) -> None:
    amy = browser("amy")
    assert send(amy, content, "logo.png").status_code == 400
    assert amy.get("/acme/logo").status_code == 404


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (png(MAX_SIDE, 1), "image/png"),
        (png(3, 2, rows=bytes(22), interlaced=1), "image/png"),
        (JPEG, "image/jpeg"),
        (jpeg(1, MAX_SIDE, frame=0xC0), "image/jpeg"),
        (WEBP, "image/webp"),
        (LOSSY, "image/webp"),
        (webp(canvas(1, 1), LOSSLESS), "image/webp"),
    ],
)
def test_a_picture_is_known_by_its_structure_and_whole_only(content: bytes, kind: str) -> None:
    assert picture_type(content) == kind
    for length in range(len(content)):
        with pytest.raises(BadPicture):
            picture_type(content[:length])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (png(2_000_000_000, 2_000_000_000, rows=b""), "2000000000 x 2000000000 pixels"),
        (png(MAX_SIDE + 1, 1), "4097 x 1 pixels"),
        (png(0, 1), "0 x 1 pixels"),
        (png(3, 2, rows=bytes(19)), "missing or damaged"),
        (PNG.replace(b"IDAT", b"teXt"), "checksum"),
        (PNG[:33] + chunk(b"IDAT", b"no stream") + PNG[-12:], "missing or damaged"),
        (PNG[:33] + PNG[-12:], "missing or damaged"),
        (PNG[:8] + PNG[33:], "header"),
        (jpeg(MAX_SIDE + 1, 1), "4097 x 1 pixels"),
        (jpeg(3, 2, frame=0xC4), "pixels are missing"),
        (JPEG[:8] + b"\0" + JPEG[8:], "does not begin where"),
        (WEBP + b"\0", "longer or shorter"),
        (webp(canvas(1, 1)), "missing or damaged"),
        (webp(canvas(MAX_SIDE + 1, 1), LOSSLESS), "4097 x 1 pixels"),
        (webp((b"VP8 ", bytes(30))), "missing or damaged"),
        (b"GIF89a", "another kind"),
    ],
)
def test_what_is_wrong_with_a_picture_is_told(content: bytes, says: str) -> None:
    with pytest.raises(BadPicture, match=says):
        picture_type(content)
