"""Every domain's faces are part of the application."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import osmosis_platform
from osmosis_platform.app import APIS, PAGES

PACKAGE = Path(osmosis_platform.__file__).parent


@pytest.mark.parametrize(("face", "mounted"), [("api", APIS), ("views", PAGES)])
def test_every_router_is_mounted(face: str, mounted: tuple[object, ...]) -> None:
    domains = sorted(path.parent.name for path in PACKAGE.glob(f"*/{face}.py"))
    assert "accounts" in domains
    missing = [
        domain
        for domain in domains
        if importlib.import_module(f"osmosis_platform.{domain}.{face}").router not in mounted
    ]
    assert missing == [], "add them to app.py"
