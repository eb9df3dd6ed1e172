"""Every key is documented with its default, range and purpose."""

from pathlib import Path

import pytest

from osmosis_ai.config.schema import EVAL_POLICY, EXPERIMENT, SECTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
KEYS = [
    *(
        (kind, section, key)
        for kind, tables in SECTIONS.items()
        for section, keys in tables.items()
        for key in keys
    ),
    *(("eval", "advanced.policy", key) for key in EVAL_POLICY),
]


def part(kind, section):
    """The text of one table's section on the page."""
    heading = f"### `[{section}]`"
    if section == "advanced":
        heading += " of an evaluation" if kind == "eval" else " of a training"
    assert heading in PAGE, heading
    return PAGE.split(heading + "\n", 1)[1].split("\n#", 1)[0]


@pytest.mark.parametrize(("kind", "section", "key"), KEYS, ids=[f"{k}-{s}-{key.name}" for k, s, key in KEYS])
def test_key_is_documented(kind, section, key):
    row = f"| `{key.name}` | `{key.default_text}` | {key.range_text} | {key.purpose} |"
    assert row in part(kind, section)


@pytest.mark.parametrize("key", EXPERIMENT, ids=lambda key: key.name)
def test_experiment_key_is_documented(key):
    assert f"| `{key.name}` | {'yes' if key.required else 'no'} | {key.purpose} |" in part(
        "eval", "experiment"
    )


def test_the_page_lists_no_key_that_does_not_exist():
    for kind, tables in SECTIONS.items():
        for section, keys in tables.items():
            rows = [line.split("`")[1] for line in part(kind, section).splitlines() if line.startswith("| `")]
            assert rows == [key.name for key in keys]
