"""The workspace template: complete, consistent, and its data correct."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from osmosis_ai.cli.doctor import missing_paths
from osmosis_ai.config import Submission, load_config, validate_submission
from osmosis_ai.datasets import validate_file
from osmosis_ai.templates import STARTERS, TemplateError, write_workspace

ROOT = Path(__file__).parents[3]


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def factors(row):
    return tuple(sorted(int(number) for number in re.findall(r"\d+", row["user_prompt"])))


def test_a_written_workspace_has_what_doctor_wants(tmp_path):
    (tmp_path / ".git").mkdir()
    files = write_workspace(tmp_path)
    assert missing_paths(tmp_path) == []
    assert {"README.md", "pyproject.toml", ".gitignore", "configs/training/default.toml"} <= set(files)
    with pytest.raises(TemplateError, match="not empty"):
        write_workspace(tmp_path)


@pytest.mark.parametrize("name", STARTERS)
def test_starter_configs_are_accepted_by_loader_and_platform(template, name):
    evaluation = validate_submission(
        "eval", load_config(f"configs/eval/{name}.toml", "eval", template).request_body()
    )
    assert isinstance(evaluation, Submission)
    assert evaluation.secrets == []
    loaded = load_config(f"configs/training/{name}.toml", "training", template)
    training = validate_submission("training", loaded.request_body())
    assert isinstance(training, Submission)
    assert training.experiment["model_path"] == "osmosis/tiny-multiply"
    assert training.experiment["dataset"] == evaluation.experiment["dataset"] == "multiply"
    preset = {
        key: training.config["training"][key] for key in ("rollout_batch_size", "n_samples_per_prompt", "lr")
    }
    assert preset == {"rollout_batch_size": 8, "n_samples_per_prompt": 8, "lr": 1.5e-3}
    assert training.config["checkpoints"] == {"eval_interval": 5, "checkpoint_save_freq": 5}
    assert training.config["advanced"]["max_steps"] == 20
    assert training.config["advanced"]["max_completion_tokens"] == 64


@pytest.mark.parametrize(("file", "count"), [("multiply.jsonl", 512), ("multiply-heldout.jsonl", 64)])
def test_every_row_asks_for_a_product_and_knows_it(template, file, count):
    data = rows(template / "data" / file)
    assert len(data) == count
    for row in data:
        a, b = factors(row)
        assert 1 <= a <= b <= 99
        assert row["ground_truth"] == str(a * b)
        assert row["system_prompt"]
    report = validate_file(template / "data" / file)
    assert report.errors == []
    assert report.row_count == count


def test_held_out_products_do_not_occur_in_training(template):
    train, held_out = (
        rows(template / "data" / name) for name in ("multiply.jsonl", "multiply-heldout.jsonl")
    )
    assert not {factors(row) for row in train} & {factors(row) for row in held_out}
    shapes = {re.sub(r"\d+", "N", row["user_prompt"]) for row in train}
    assert len(shapes) == 7
    assert len({row["system_prompt"] for row in train}) == 3


def test_the_data_is_what_its_generator_makes(template):
    spec = importlib.util.spec_from_file_location(
        "make_multiply_data", ROOT / "tools" / "make_multiply_data.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    train, held_out = module.make_rows()
    assert (template / "data/multiply.jsonl").read_text().splitlines() == train
    assert (template / "data/multiply-heldout.jsonl").read_text().splitlines() == held_out


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("multiply-local-openai", "openai-agents"),
        ("multiply-local-strands", "strands"),
        ("multiply-harbor-strands", "harbor,strands"),
    ],
)
def test_starters_declare_their_framework(template, name, extra):
    project = tomllib.loads((template / "rollouts" / name / "pyproject.toml").read_text())["project"]
    assert f"osmosis-ai[server,{extra}]>=0.3.0,<0.4" in project["dependencies"]
    assert project["name"] == name
