"""Numbers that no list has are refused, whatever page they are asked of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LISTS = (
    "evaluation", "training", "datasets", "models", "rollouts", "git", "secrets", "settings/audit", "settings/webhooks",
)  # fmt: skip


@pytest.mark.parametrize("offset", ["99999999999999999999999", "-1", "x"])
def test_an_offset_beyond_any_list_is_wrong_usage(browser: Callable[[str], Any], offset: str) -> None:
    ada = browser("ada").client
    page = ada.get(f"/acme/evaluation?offset={offset}", headers={"Accept": "text/html"}).text
    assert "offset: This is no place in a list: it has to be a whole number from 0 to" in page
    statuses = {place: ada.get(f"/acme/{place}?offset={offset}").status_code for place in LISTS}
    assert statuses == dict.fromkeys(LISTS, 400)
