"""docs/training.md describes every option and every metric, and nothing that does not exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osmosis_trainer.gateway.ledger import TokenFate
from osmosis_trainer.metrics import LEARNER_METRICS
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.train import train

PAGE = (Path(__file__).parents[3] / "docs" / "training.md").read_text()


def documented(section: str) -> dict[str, str]:
    """Name to the rest of its line, for the tables of a section of options."""
    part = PAGE.split(f"\n`[{section}]`\n")[1].split("\n`[")[0].split("\n## ")[0]
    found: dict[str, str] = {}
    for line in part.splitlines():
        if line.startswith("| `"):
            names, rest = line[2:].split("|", 1)
            found |= dict.fromkeys(re.findall(r"`(\w+)`", names), rest)
    return found


def test_every_option_is_documented_and_no_other() -> None:
    for section, field in RunSettings.model_fields.items():
        assert set(documented(section)) == set(type(field.default).model_fields), section


def test_documented_defaults_are_the_defaults() -> None:
    checked = 0
    for section, field in RunSettings.model_fields.items():
        for name, line in documented(section).items():
            default = line.split("|")[0].strip(" `")
            value = getattr(field.default, name)
            if value is None or "," in default:
                continue
            assert type(value)(default != "false" if isinstance(value, bool) else default) == value, name
            checked += 1
    assert checked > 20


async def test_every_metric_is_documented_and_no_other(make_run: Callable[..., Any]) -> None:
    run = make_run(advanced={"max_steps": 2, "max_staleness": 1})
    await train(run)
    sent = {key for event in run.report._events.of("metrics") for key in event["values"]}
    known = set(re.findall(r"^\| `([a-z]+/[a-z_0-9/]+)` \|", PAGE, flags=re.MULTILINE))
    assert sent <= known
    possible = sent | set(LEARNER_METRICS.values()) | {f"ledger/{fate}" for fate in TokenFate}
    # Needs an answer with a tool call.
    assert known - possible == {"rollout/tool_error_ratio"}
