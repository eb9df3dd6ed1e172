"""Rendering of pages: the Jinja environment, formats for people, and JSON at the same address."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from osmosis_platform.web.text import plain_output

STATIC = Path(str(importlib.resources.files("osmosis_platform.web") / "static"))

TONES = {
    "finished": "good",
    "uploaded": "good",
    "success": "good",
    "delivered": "good",
    "active": "good",
    "failed": "bad",
    "crashed": "bad",
    "error": "bad",
    "running": "busy",
    "processing": "busy",
    "uploading": "busy",
    "syncing": "busy",
}


def wants_json(request: Request) -> bool:
    """Whether the caller prefers JSON: `?format=json`, or an Accept header that names it and not HTML."""
    if request.query_params.get("format") == "json":
        return True
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def render(
    request: Request, template: str, data: dict[str, Any], *, status: int = 200, **chrome: Any
) -> Response:
    """The page, or the same `data` as JSON. `chrome` is what only the page needs (navigation, forms)."""
    if wants_json(request):
        return JSONResponse(data, status_code=status, headers={"Vary": "Accept"})
    html = fragment(template, **data, **chrome)
    return HTMLResponse(html, status_code=status, headers={"Vary": "Accept", "Cache-Control": "no-store"})


def fragment(template: str, **values: Any) -> str:
    """A template as text: a page, or a part of one."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """The one Jinja environment: everything is escaped and made plain, and an unknown name is an error."""
    env = Environment(
        loader=PackageLoader("osmosis_platform.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=plain_output,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        moment=moment,
        minute=minute,
        clock=clock,
        size=size,
        duration=duration,
        number=number,
        significant=significant,
        signed=signed,
        pvalue=pvalue,
        percent=percent,
        count=count,
        form_fields=form_fields,
        setting=setting,
        tone=tone,
    )
    env.globals["asset"] = asset
    return env


def mount_static(app: FastAPI) -> None:
    """Serve style, script and vendored libraries."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")


@cache
def asset(name: str) -> str:
    """The address of a static file, with its content's hash so that browsers may keep it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def tone(status: str | None) -> str:
    """The colour class of a status."""
    return TONES.get(status or "", "")


def moment(value: str | None, zone: str = "UTC") -> str:
    """An ISO moment in the workspace's zone: `2026-11-01 14:05:09 UTC`."""
    return _local(value, zone, "%Y-%m-%d %H:%M:%S %Z")


def minute(value: str | None, zone: str = "UTC") -> str:
    """The same for lists: `2026-11-01 14:05`. The zone is named once on the page."""
    return _local(value, zone, "%Y-%m-%d %H:%M")


def clock(value: str | None, zone: str = "UTC") -> str:
    """The same for log lines: `11-01 14:05:09`."""
    return _local(value, zone, "%m-%d %H:%M:%S")


def _local(value: str | None, zone: str, form: str) -> str:
    if not value:
        return "–"
    return datetime.fromisoformat(value).astimezone(ZoneInfo(zone)).strftime(form)


def size(value: int | None) -> str:
    """Bytes with a binary unit: `1.2 KB`."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


def duration(milliseconds: float | None) -> str:
    """`8.5s`, `27s`, `2m 5s`, `3h 4m`."""
    if milliseconds is None:
        return "–"
    seconds = milliseconds / 1000
    if seconds < 59.5:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s"
    return f"{minutes // 60}h {minutes % 60}m"


def number(value: float | None, digits: int = 2) -> str:
    """A fixed number of decimals, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def significant(value: float | None) -> str:
    """Four significant digits, or a dash."""
    return "–" if value is None else f"{value:.4g}"


def signed(value: float | None, digits: int = 3) -> str:
    """The same with its sign, for differences: `+0.120`, `−0.050`, `0`."""
    if value is None:
        return "–"
    text = f"{abs(value):.{digits}f}"
    return "0" if value == 0 else ("+" if value > 0 else "−") + text


def pvalue(value: float | None) -> str:
    """A probability as tests report it: `0.012`, `< 0.001`."""
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def percent(value: float | None) -> str:
    """A share from 0 to 1 as per cent."""
    return "–" if value is None else f"{value:.1%}"


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return "–" if value is None else f"{value:,}"


def setting(value: object) -> str:
    """A value of a config as the config writes it: `true`, `0.5`, `[1, 2]`; text without its quotes, a dash for none."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def form_fields(query: str) -> list[tuple[str, str]]:
    """The fields of a form that waited for somebody to sign in, without any token that would carry it out."""
    return [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != "csrf"]
