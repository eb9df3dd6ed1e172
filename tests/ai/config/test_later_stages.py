"""The first failing stage gives the error; what is wrong in later stages is told with it, each with its line."""

from __future__ import annotations

import pytest

from osmosis_ai.config import ConfigError, load_config
from osmosis_ai.config.benchmark import load_benchmark_config

SECRETS = "[secrets]\nrequired = []\n"
EXPERIMENT = '[experiment]\nrollout = "calc"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
AGENT = '[[agents]]\n[agents.model]\ntype = "provider"\nmodel = "m"\napi_key_secret = "{}"\n'


@pytest.mark.parametrize(
    ("kind", "text", "first", "also"),
    [
        ("eval", EXPERIMENT, "Missing [secrets] section", []),
        (
            "eval",
            "[evaluation]\nlimt = 1\n",
            "Missing [experiment] section",
            [("secrets", None), ("evaluation.limt", 2)],
        ),
        (
            "eval",
            "experiment = 1\nevaluation = 2\n" + SECRETS,
            "[experiment] must be a table",
            [("evaluation", 2)],
        ),
        (
            "eval",
            '[experiment]\nentrypoint = "main.py"\n' + SECRETS,
            "Missing 'rollout' in [experiment]",
            [("experiment.model_path", 1), ("experiment.dataset", 1)],
        ),
        (
            "eval",
            EXPERIMENT + "[secrets]\nother = 1\n[evaluation]\nn = 0\n",
            "only supports the 'required' field",
            [("secrets", 6), ("evaluation.n", 9)],
        ),
        (
            "eval",
            EXPERIMENT + "[env]\nlow = 'x'\nB = 1\n[secrets]\nrequired = ['B', 'c', 3]\n",
            "[secrets].required must be a list of strings",
            [("env.B", 8), ("env.low", 7), ("secrets.required.1", 10), ("env.B", 8)],
        ),
        (
            "training",
            EXPERIMENT + "[llm]\n[training]\nlr = 'high'\n[sampling]\nrollout_top_p = 7\n[env]\na = 'x'\n",
            "Invalid training config:\n  - llm: Unrecognized section (line 6)",
            [("env.a", 12), ("sampling.rollout_top_p", 10), ("training.lr", 8)],
        ),
        (
            "training",
            EXPERIMENT.replace("main.py", "none.py") + "[env]\na = 'x'\n[secrets]\nrequired = ['A', 'A']\n",
            "[env]: Invalid env var name 'a'",
            [("secrets.required", 9), ("experiment.entrypoint", 3)],
        ),
    ],
)
def test_problems_of_all_stages_come_at_once(workspace_dir, write_config, kind, text, first, also):
    with pytest.raises(ConfigError) as caught:
        load_config(write_config(kind, body=text), kind, workspace_dir)
    error = caught.value
    assert error.message.startswith(first) or first in error.message.splitlines()[0]
    assert [(found["key"], found.get("line")) for found in error.details.get("also", [])] == also
    lines = error.further_lines()
    assert lines[:1] == (["Also wrong in this file:"] if also else [])
    for (key, line), shown in zip(also, lines[1:], strict=True):
        assert shown.startswith(f"  - {key}: ")
        assert line is None or f"line {line}" in shown


def test_values_alone_are_left_to_the_platform(workspace_dir, write_config):
    path = write_config("eval", f"[evaluation]\nn = 0\n{SECRETS}")
    assert load_config(path, "eval", workspace_dir).sections == {"evaluation": {"n": 0}}


@pytest.mark.parametrize(
    ("text", "first", "also"),
    [
        (
            "[tasks]\ntask_names = [' ']\n[env]\nlow = 'x'\n",
            "Missing [experiment] section",
            [("agents", None), ("tasks.task_names.0", 2), ("env.low", 4)],
        ),
        (
            "[experiment]\nbenchmark = 'b'\nmore = 1\nagents = 1\n",
            "Missing [[agents]] section",
            [("experiment.more", 3), ("experiment.agents", 4)],
        ),
        (
            "[experiment]\nbenchmark = 'b'\n[env]\nlow = 'x'\nHF_TOKEN = 'x'\n" + AGENT.format("HF_TOKEN"),
            "[env]: Invalid env var name 'low'",
            [
                ("env", 3),
                ("agents.0.model.provider.api_key_secret", 10),
                ("agents.0.model.provider.api_key_secret", 10),
            ],
        ),
        (
            "[experiment]\nbenchmark = 'b'\n" + AGENT.format("a") + AGENT.format("DAYTONA_API_KEY"),
            "agents.0.model.provider.api_key_secret: Invalid secret name 'a'",
            [("agents.1.model.provider.api_key_secret", 12)],
        ),
    ],
)
def test_problems_of_all_stages_of_a_benchmark_come_at_once(workspace_dir, text, first, also):
    path = workspace_dir / "configs/benchmark/b.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_benchmark_config(path, workspace_dir)
    assert caught.value.message.startswith(first)
    assert [(found["key"], found.get("line")) for found in caught.value.details["also"]] == also
