"""The packaged workspace template."""

from pathlib import Path

import pytest

from osmosis_ai.templates import workspace_source


@pytest.fixture(scope="session")
def template() -> Path:
    return workspace_source()
