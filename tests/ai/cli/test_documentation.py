"""The reference page shows the commands as they are."""

import importlib.util
import re
from pathlib import Path

from osmosis_ai.cli.errors import ERROR_CODES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def generator():
    spec = importlib.util.spec_from_file_location(
        "make_cli_reference", ROOT / "tools" / "make_cli_reference.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_tables_are_up_to_date():
    """Run `python tools/make_cli_reference.py` after changing a command."""
    assert generator().with_reference(PAGE) == PAGE


def test_every_error_code_is_documented():
    assert ERROR_CODES - set(re.findall(r"`([A-Z_]+)`", PAGE)) == set()


def test_every_variable_that_the_program_reads_is_documented():
    configuration = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    package = ROOT / "packages/osmosis-ai/src/osmosis_ai"
    read = set()
    for room in ("cli", "platform", "templates"):
        for path in (package / room).rglob("*.py"):
            if "workspace" not in path.parts:
                read |= set(re.findall(r'"(OSMOSIS_[A-Z_]+)"', path.read_text(encoding="utf-8")))
    assert read >= {"OSMOSIS_TOKEN", "OSMOSIS_PLATFORM_URL"}
    assert read - set(re.findall(r"`(OSMOSIS_[A-Z_]+)`", configuration)) == set()
