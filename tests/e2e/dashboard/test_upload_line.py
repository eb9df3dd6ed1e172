"""The line of an upload says how the check of the rows ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect
from sqlalchemy import select

from osmosis_platform.accounts.models import User
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.workspaces.service import create_workspace


def test_a_failed_check_is_told_where_the_upload_was(
    visit: Callable[..., Any], site: Any, tmp_path: Path
) -> None:
    file = tmp_path / "refused.jsonl"
    file.write_text('{"prompt": "the column has another name"}\n')
    with site.platform.database.write() as session:
        ada = session.scalars(select(User).where(User.email == site.email)).one()
        create_workspace(session, "sending", ada)
    page = visit().sign_in()
    page.goto(f"{site.url}/sending/datasets")
    expect(page.locator("html[data-upload=ready]")).to_have_count(1)
    page.get_by_label("JSONL, CSV or Parquet").set_input_files(file)
    page.get_by_role("button", name="Upload", exact=True).click()
    line = page.locator("[data-uploads] li", has_text="refused")
    expect(line.get_by_role("link", name="Open the dataset")).to_be_visible()
    # Nobody checks datasets here, so the end of the check is written as the check would.
    with site.platform.database.write() as session:
        dataset = session.scalars(select(Dataset).where(Dataset.name == "refused")).one()
        dataset.status, dataset.error = "error", "Row 1 has no user_prompt."
    told = line.get_by_text("Row 1 has no user_prompt.")
    expect(told).to_have_class(re.compile("fail"))
    expect(line).not_to_contain_text("is checked now")
