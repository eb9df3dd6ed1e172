"""Offset pages and log pages."""

from __future__ import annotations

import httpx
import pytest

from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput
from osmosis_platform.http.logs import Direction, logs_page
from osmosis_platform.http.paging import Page
from osmosis_platform.runs.models import LogLine

LIST = "/api/cli/environment-secrets"


@pytest.mark.parametrize("query", ["limit=0", "limit=51", "offset=-1", "limit=x"])
def test_bad_pages(client: httpx.Client, town, query: str) -> None:  # type: ignore[no-untyped-def]
    answer = client.get(f"{LIST}?{query}", headers=town.ada.scoped())
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION")


def test_next_offset_ends() -> None:
    assert Page(2, 0).body("things", [1, 2], 3) == {
        "things": [1, 2],
        "total_count": 3,
        "has_more": True,
        "next_offset": 2,
    }
    assert Page(2, 2).body("things", [3], 3)["next_offset"] is None
    assert Page(2, 9).body("things", [], 3) == {
        "things": [],
        "total_count": 3,
        "has_more": False,
        "next_offset": None,
    }


def walk(platform: Platform, direction: Direction) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        with platform.database.read() as session:
            page = logs_page(session, "run", limit=2, direction=direction, cursor=cursor)
        pages.append([line["message"] for line in page["logs"]])
        cursor = page["next_cursor"]
        if cursor is None:
            return pages


def test_logs_are_walked_completely_in_both_directions(platform: Platform) -> None:
    with platform.database.write() as session:
        for number in range(5):
            for owner in ("run", "other"):
                session.add(LogLine(owner_id=owner, event_id=f"{number}", message=f"{number}"))
                session.flush()
    assert walk(platform, "older") == [["3", "4"], ["1", "2"], ["0"]]
    assert walk(platform, "newer") == [["0", "1"], ["2", "3"], ["4"]]
    with platform.database.read() as session:
        line = logs_page(session, "run", limit=1)["logs"][0]
        assert line["timestamp"].endswith("+00:00")
        assert set(line) == {"timestamp", "level", "step", "message", "details"}
        for cursor in ("x", "1|2", "-1", "9" * 30):
            with pytest.raises(InvalidInput):
                logs_page(session, "run", cursor=cursor)
        assert logs_page(session, "nobody") == {"logs": [], "next_cursor": None}
