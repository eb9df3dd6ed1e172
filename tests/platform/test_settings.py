"""Settings: each is documented, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from osmosis_platform.settings import Settings

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def documented() -> dict[str, str]:
    rows = re.findall(r"^\| `OSMOSIS_([A-Z_]+)` \| (.*?) \|", OPERATIONS.read_text("utf-8"), re.MULTILINE)
    return {name.lower(): default.strip("`") for name, default in rows}


def test_every_setting_is_documented_and_nothing_else() -> None:
    assert set(documented()) == set(Settings.model_fields)


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_documented_default_is_the_default(name: str) -> None:
    default = Settings.model_fields[name].default
    if default is not None:
        shown = str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0")
        assert documented()[name] == shown


def test_every_setting_describes_itself() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"port": 1}, "http://127.0.0.1:1"),
        ({"host": "0.0.0.0", "port": 1}, "http://127.0.0.1:1"),
        ({"host": "::1", "port": 1}, "http://[::1]:1"),
        ({"public_url": "https://a.example/"}, "https://a.example"),
    ],
)
def test_public_address(given: dict[str, object], expected: str) -> None:
    assert Settings.model_validate(given).resolved_public_url == expected


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSMOSIS_TRAINING_SLOTS", "3")
    assert Settings().training_slots == 3


def test_version_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(ValidationError, match="not a version"):
        Settings(minimum_cli_version="latest")
