"""Problems are told with the line on which their key stands."""

import tomllib
from pathlib import Path

import pytest

from osmosis_ai.config import ConfigError, load_config
from osmosis_ai.config.benchmark import load_benchmark_config
from osmosis_ai.config.lines import KeyLines
from osmosis_ai.config.schema import EXPERIMENT, SECTIONS

TEMPLATES = Path(load_config.__globals__["__file__"]).parents[1] / "templates"
NASTY = r'''# [comment]
title = "x" # [no]
[experiment]   # a = 1
rollout = 'a # b'
"quoted key" = 1
a.b . c = 3

[evaluation]
n = [1, # x
  2, "]", '\',
  { z = 1, y = { q = 2 } },
]
text = """
[fake]
k = 1
\""" still """"
other = """
x = 1"""
after = 1
[[agents]]
harness = "x"
[agents.model]
type = "p"
[[agents]]
model = { type = "e", extra_headers = { A = "1" } }
meta.B = "x"
[agents.env]
C = 1979-05-27 07:32:00
[env]
A = -1.5e3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("title", 2),
        ("experiment", 3),
        ("experiment.rollout", 4),
        ("experiment.quoted key", 5),
        ("experiment.a.b.c", 6),
        ("experiment.missing", 3),
        ("evaluation.n", 9),
        ("evaluation.n.1", 10),
        ("evaluation.n.4.y.q", 11),
        ("evaluation.text", 13),
        ("evaluation.k", 8),
        ("evaluation.other", 17),
        ("evaluation.after", 19),
        ("agents", 20),
        ("agents.0.harness", 21),
        ("agents.0.model.provider.type", 23),
        ("agents.1", 24),
        ("agents.1.model.extra_headers.A", 25),
        ("agents.1.meta.B", 26),
        ("agents.1.env.C", 28),
        ("env.A", 30),
        ("fake", None),
        ("nothing.at.all", None),
    ],
)
def test_every_form_of_toml(path, line):
    tomllib.loads(NASTY)
    assert KeyLines(NASTY).of(path) == line


def paths(value, path=()):
    for key, item in value.items():
        yield (*path, key)
        if isinstance(item, dict):
            yield from paths(item, (*path, key))


@pytest.mark.parametrize("file", sorted(TEMPLATES.rglob("*.toml")), ids=lambda file: file.name)
def test_keys_of_our_own_files_stand_where_they_are_said_to(file):
    text = file.read_text()
    lines, written = KeyLines(text), text.splitlines()
    for path in paths(tomllib.loads(text)):
        if not any("." in part for part in path):
            assert path[-1] in written[lines.of(".".join(path)) - 1]


KNOWN = [
    (kind, section, key.name)
    for kind, tables in SECTIONS.items()
    for section, keys in {"experiment": EXPERIMENT, **tables}.items()
    if section != "advanced"
    for key in keys
]


@pytest.mark.parametrize(("kind", "section", "name"), KNOWN)
def test_every_misspelt_key_is_told_with_its_line_and_what_was_meant(
    workspace_dir, write_config, kind, section, name
):
    wrong = name + "x"
    if section == "experiment":
        path, line = write_config(kind, "[secrets]\nrequired = []", experiment=f'{wrong} = "1"'), 6
    else:
        path, line = write_config(kind, f"[{section}]\n{wrong} = 1\n[secrets]\nrequired = []"), 8
    with pytest.raises(ConfigError) as caught:
        load_config(path, kind, workspace_dir)
    key = f"{section}.{wrong}"
    assert caught.value.message == (
        f"Invalid {kind} config:\n  - {key}: Unrecognized key (did you mean '{section}.{name}'?) (line {line})"
    )
    assert caught.value.details["issues"] == [
        {"key": key, "message": "Unrecognized key", "key_correction": f"{section}.{name}"}
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[experiment]\nrollout = "calc"', 1),
        ('\n\n[experiment]\nrollout = "calc"\nentrypoint = ""', 5),
        ("\nevaluation = 1\n[experiment]", 2),
        ("{EXPERIMENT}\n[secrets]\nrequired = [\n'A',\n1]", 7),
        ("{EXPERIMENT}\n[secrets]\nrequired = []\nmore = 1", 8),
        ("{EXPERIMENT}\n[secrets]", 6),
        ("{EXPERIMENT}\n[env]\nGOOD = ''\na = ''\n[secrets]\nrequired = []", 8),
        ("{EXPERIMENT}\n[secrets]\nrequired = [\n'A',\n'a']", 9),
        ("{EXPERIMENT}\n[env]\nB = ''\nA = ''\n[secrets]\nrequired = ['A']", 8),
        (
            "[experiment]\nrollout = '..'\nentrypoint = 'main.py'\nmodel_path = 'm'\ndataset = 'd'\n[secrets]\nrequired = []",
            2,
        ),
        (
            "[experiment]\nrollout = 'calc'\nentrypoint = 'x.py'\nmodel_path = 'm'\ndataset = 'd'\n[secrets]\nrequired = []",
            3,
        ),
    ],
)
def test_every_stage_names_the_line(workspace_dir, write_config, text, line):
    experiment = "[experiment]\nrollout = 'calc'\nentrypoint = 'main.py'\nmodel_path = 'm'\ndataset = 'd'"
    path = write_config("eval", body=text.replace("{EXPERIMENT}", experiment))
    with pytest.raises(ConfigError) as caught:
        load_config(path, "eval", workspace_dir)
    assert f"calc.toml, line {line}" in caught.value.message
    assert caught.value.details["line"] == line


def test_all_problems_of_a_stage_come_at_once(workspace_dir, write_config):
    more = "[env]\na = ''\n_OSMOSIS_B = ''\n[secrets]\nrequired = []"
    with pytest.raises(ConfigError) as caught:
        load_config(write_config("eval", more), "eval", workspace_dir)
    assert [text.partition(" (")[0].split(":")[1][:22] for text in caught.value.message.splitlines()] == [
        " Invalid env var name ",
        " Env var name '_OSMOSI",
    ]
    more = "[env]\nC = ''\n[secrets]\nrequired = ['A', 'a', 'C', 'A']"
    with pytest.raises(ConfigError) as caught:
        load_config(write_config("eval", more), "eval", workspace_dir)
    for fragment in (
        "Duplicate secret name(s)",
        "Invalid secret name 'a'",
        "C appears in both [env] and [secrets]",
    ):
        assert fragment in caught.value.message


def test_windows_files_are_read(workspace_dir, write_config):
    path = write_config("eval", "[evaluation]\nbad = 1\n[secrets]\nrequired = []")
    file = workspace_dir / path
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(ConfigError, match=r"evaluation\.bad: Unrecognized key \(line 8\)"):
        load_config(path, "eval", workspace_dir)


@pytest.mark.parametrize(
    ("text", "line", "key", "meant"),
    [
        (
            "[experiment]\nbenchmrk = 'b'\nbenchmark = 'b'\n{AGENT}",
            2,
            "experiment.benchmrk",
            "experiment.benchmark",
        ),
        ("{EXPERIMENT}\n[task]\n{AGENT}", 4, "task", "tasks"),
        ("{EXPERIMENT}\n{AGENT}\nharnes = 'x'", 6, "agents.0.harnes", "agents.0.harness"),
        (
            "{EXPERIMENT}\n{AGENT}\n{AGENT}\njudge_model = 'x'",
            8,
            "agents.1.judge_model",
            "execution.judge_model",
        ),
        (
            "{EXPERIMENT}\n{AGENT}\napi_key_secret = 'A'",
            6,
            "agents.0.api_key_secret",
            "agents.0.model.api_key_secret",
        ),
        (
            "{EXPERIMENT}\n{AGENT}\n[execution]\n\nmax_retrys = 1",
            8,
            "execution.max_retrys",
            "execution.max_retries",
        ),
        (
            "{EXPERIMENT}\n[[agents]]\n[agents.model]\ntype = 'hosted'\nbase_model = 'b'\nlora_model_name = 'l'\nlora = 'l'",
            9,
            "agents.0.model.hosted.lora",
            None,
        ),
    ],
)
def test_benchmark_files_too(tmp_path, text, line, key, meant):
    agent = "[[agents]]\nmodel = { type = 'provider', model = 'm', api_key_secret = 'KEY' }"
    text = text.replace("{EXPERIMENT}", "[experiment]\nbenchmark = 'b'\n").replace("{AGENT}", agent)
    file = tmp_path / "configs/benchmark/b.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_benchmark_config(file, tmp_path)
    suggestion = f" (did you mean '{meant}'?)" if meant else ""
    assert f"  - {key}: Unrecognized key{suggestion} (line {line})" in caught.value.message
