"""Which commands there are, and with which arguments, options, defaults and ranges: what scripts rely on."""

import importlib
import json

import click
import pytest

from osmosis_ai.cli.tree import COMMANDS, HIDDEN

PAGE = "--limit=50[1..50] --all"
LOG_PAGE = "--limit=50[1..200] --cursor"
YES = "-y/--yes"
OUTPUT = "-o/--output"
SURFACE = {
    "auth login": "-f/--force --token",
    "auth logout": YES,
    "auth whoami": "",
    "doctor": "path=. --fix",
    "template list": "",
    "template apply": "name -f/--force",
    "rollout init": "name -f/--force",
    "rollout list": f"{PAGE} --branch",
    "dataset upload": f"file --overwrite {YES}",
    "dataset download": f"name {OUTPUT} --overwrite",
    "dataset list": PAGE,
    "dataset info": "name",
    "dataset preview": "name --rows=5",
    "dataset validate": "file",
    "dataset logs": f"name {LOG_PAGE}",
    "train submit": f"config_path --secrets-file {YES}",
    "train list": PAGE,
    "train info": f"name {OUTPUT} -w/--watch",
    "train logs": f"name {LOG_PAGE}",
    "train stop": f"name {YES}",
    "eval submit": f"config_path --secrets-file {YES}",
    "eval run": (
        f"config_path --name {OUTPUT} --dataset-file --rows --model-url --secrets-file --fresh --retry-failed "
        f"--max-in-flight[1..] --rollout-port[1..65535] --verbose {YES}"
    ),
    "eval list": PAGE,
    "eval info": f"name {OUTPUT} -w/--watch",
    "eval logs": f"name {LOG_PAGE}",
    "eval download": f"name --type=metrics,trajectories --rows {OUTPUT} --overwrite {YES}",
    "eval retry": f"name --secrets-file {YES}",
    "eval stop": f"name {YES}",
    "eval upload": "name_or_dir --replace",
    "eval rubric": (
        f"-d/--data! -r/--rubric! --model! -n/--number=1 {OUTPUT} --api-key --timeout --score-min=0.0 --score-max=1.0"
    ),
    "benchmark list": PAGE,
    "benchmark info": f"key {PAGE}",
    "benchmark submit": f"config_path {YES}",
    "benchmark runs list": PAGE,
    "benchmark runs info": "name",
    "benchmark runs logs": f"name {LOG_PAGE}",
    "benchmark runs stop": f"name {YES}",
    "benchmark runs download": f"name --type=summary,results {OUTPUT} --overwrite {YES}",
    "model list": f"--type=all {PAGE}",
    "model info": "lora_model_name",
    "model deploy": "lora_model_name",
    "model undeploy": "lora_model_name",
    "secret list": f"--scope=all {PAGE}",
    "secret set": "name --scope=personal --env",
    "secret delete": f"name --scope=personal {YES}",
    "upgrade": "",
    "dev server up": f"--no-ttl --ttl-hours=24[1..] {YES}",
    "dev server down": "server_id",
    "dev server logs": "server_id -f/--follow/--no-follow -n/--tail=100[1..200]",
    "dev server list": "",
}
REMOVED = [
    *("deploy", "undeploy", "deployment", "init", "link", "unlink", "login", "logout", "whoami", "workspace"),
    *(
        "dataset delete",
        "model delete",
        "rollout validate",
        "train delete",
        "train traces",
        "eval cache clear",
    ),
]


def _leaves(command, path):
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _leaves(inner, f"{path} {name}")
    else:
        yield path, command


def _parameter(parameter):
    shown = parameter.name if isinstance(parameter, click.Argument) else _names(parameter)
    default = parameter.to_info_dict()["default"]
    if isinstance(parameter, click.Option) and parameter.required:
        return f"{shown}!"
    if default is not None and default is not False:
        shown += f"={default}"
    if isinstance(parameter.type, click.IntRange):
        high = "" if parameter.type.max is None else parameter.type.max
        shown += f"[{parameter.type.min}..{high}]"
    return shown


def _names(option):
    return "/".join([*option.opts, *option.secondary_opts])


def test_commands_have_these_arguments_and_options():
    found = {
        path: " ".join(map(_parameter, command.params))
        for noun in (*COMMANDS, *HIDDEN)
        for path, command in _leaves(importlib.import_module(f"osmosis_ai.cli.commands.{noun}").app, noun)
    }
    assert found == SURFACE


@pytest.mark.parametrize("words", REMOVED)
def test_names_of_earlier_versions_are_unknown(osmosis, words):
    ran = osmosis("--json", *words.split())
    assert (ran.code, ran.out, ran.error["code"]) == (2, "", "VALIDATION")
    assert ran.error["message"].startswith("No such command")
    assert json.loads(ran.err)["command"] == words
