"""The page on datasets tells the truth: its example is valid, its rules are those of the validator."""

import json
import re
from pathlib import Path

import pytest

from osmosis_ai.datasets import EXTENSIONS, MAX_FILE_BYTES, MIN_ROWS, validate_file
from osmosis_ai.datasets.row_rules import TEXT_COLUMNS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```jsonl\n(.*?)```", PAGE, re.DOTALL).group(1)


def test_the_printed_example_is_a_valid_dataset(tmp_path):
    file = tmp_path / "cities.jsonl"
    file.write_text(EXAMPLE)
    report = validate_file(file)
    assert (report.errors, report.row_count) == ([], MIN_ROWS)


def test_formats_columns_and_limits_are_named():
    assert all(f"`.{extension}`" in PAGE for extension in EXTENSIONS)
    assert all(f"`{name}`" in PAGE for name in (*TEXT_COLUMNS, "metadata"))
    assert f"at least {MIN_ROWS};" in PAGE
    assert f"at most {MAX_FILE_BYTES // 1024**3} GB" in PAGE
    assert "(docs/datasets.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "valid"),
    [
        ({"system_prompt": "", "user_prompt": "q", "more": 1}, True),
        ({"system_prompt": "", "user_prompt": "q", "ground_truth": 7}, True),
        ({"system_prompt": "", "user_prompt": "", "metadata": {"county": "x"}}, True),
        ({"system_prompt": "", "user_prompt": "q", "metadata": None}, True),
        ({"system_prompt": "", "user_prompt": "q", "metadata": {}}, True),
        ({"system_prompt": "", "user_prompt": "q", "metadata": {"n": 2.5, "county": None}}, True),
        ({"user_prompt": "q"}, False),
        ({"system_prompt": "", "user_prompt": ""}, False),
        ({"system_prompt": "", "user_prompt": "q", "ground_truth": True}, False),
        ({"system_prompt": "", "user_prompt": ["q"]}, False),
        ({"system_prompt": "", "user_prompt": "q", "metadata": {"county": 3}}, False),
        ({"system_prompt": "", "user_prompt": "q", "metadata": {"county": {}}}, False),
        ({"system_prompt": "", "user_prompt": "q", "metadata": {"n": 2**63}}, False),
    ],
)
def test_the_rules_of_the_page_are_those_of_the_validator(tmp_path, row, valid):
    file = tmp_path / "cities.jsonl"
    file.write_text(EXAMPLE + json.dumps(row) + "\n")
    assert validate_file(file).valid is valid
