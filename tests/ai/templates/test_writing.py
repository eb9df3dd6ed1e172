"""Starters and scaffolds are written whole or not at all."""

import pytest

from osmosis_ai.config import load_config
from osmosis_ai.templates import TemplateError, apply_starter, init_rollout

NAME = "multiply-local-openai"


def refused(code, call):
    with pytest.raises(TemplateError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_a_starter_is_copied_with_configs_and_data(tmp_path):
    applied = apply_starter(NAME, tmp_path)
    assert all((tmp_path / path).is_file() for path in applied.files)
    assert f"rollouts/{NAME}/main.py" in applied.files
    assert "data/multiply.jsonl" in applied.files
    assert [str(path.relative_to(tmp_path)) for path in applied.destinations] == [
        f"rollouts/{NAME}",
        f"configs/eval/{NAME}.toml",
        f"configs/training/{NAME}.toml",
        "data/multiply.jsonl",
    ]


def test_two_starters_share_their_data(tmp_path):
    apply_starter(NAME, tmp_path)
    apply_starter("multiply-local-strands", tmp_path)


def test_a_second_time_needs_force_and_names_what_is_in_the_way(tmp_path):
    apply_starter(NAME, tmp_path)
    main = tmp_path / "rollouts" / NAME / "main.py"
    main.write_text("mine")
    (main.parent / "extra.py").write_text("")
    error = refused("CONFLICT", lambda: apply_starter(NAME, tmp_path))
    assert f"rollouts/{NAME}/" in error.message
    assert "--force" in error.message
    assert main.read_text() == "mine"
    apply_starter(NAME, tmp_path, force=True)
    assert main.read_text() != "mine"
    assert not (main.parent / "extra.py").exists()


def test_other_data_of_the_same_name_is_a_conflict(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/multiply.jsonl").write_text("mine")
    error = refused("CONFLICT", lambda: apply_starter(NAME, tmp_path))
    assert error.details["paths"] == ["data/multiply.jsonl"]
    assert not (tmp_path / "rollouts").exists()


def test_force_does_not_follow_a_symlinked_rollout(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "keep").write_text("")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / NAME).symlink_to(elsewhere)
    refused("CONFLICT", lambda: apply_starter(NAME, tmp_path, force=True))
    assert (elsewhere / "keep").exists()


def test_targets_outside_the_workspace_are_refused(tmp_path):
    workspace, outside = tmp_path / "w", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "configs").symlink_to(outside)
    refused("VALIDATION", lambda: apply_starter(NAME, workspace))
    refused("VALIDATION", lambda: init_rollout("calc", workspace))
    assert list(outside.iterdir()) == []


def test_unknown_starter_lists_the_known_ones(tmp_path):
    assert NAME in refused("NOT_FOUND", lambda: apply_starter("nope", tmp_path)).message


def test_a_template_folder_can_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("OSMOSIS_WORKSPACE_TEMPLATE_PATH", str(tmp_path / "none"))
    refused("NOT_FOUND", lambda: apply_starter(NAME, tmp_path))
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("OSMOSIS_WORKSPACE_TEMPLATE_PATH", str(tmp_path / "empty"))
    refused("NOT_FOUND", lambda: apply_starter(NAME, tmp_path))


@pytest.mark.parametrize("name", ["Calc", "1calc", "ca_lc", "", "default", "calc\n", "-x"])
def test_bad_rollout_names(tmp_path, name):
    refused("VALIDATION", lambda: init_rollout(name, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_scaffold_names_the_rollout_everywhere_and_its_configs_load(tmp_path):
    made = init_rollout("calc-2", tmp_path)
    assert made.files == [
        "rollouts/calc-2/main.py",
        "rollouts/calc-2/pyproject.toml",
        "rollouts/calc-2/README.md",
        "configs/eval/calc-2.toml",
        "configs/training/calc-2.toml",
    ]
    for path in made.files:
        assert "<your-rollout>" not in (tmp_path / path).read_text()
    evaluation = load_config("configs/eval/calc-2.toml", "eval", tmp_path)
    assert evaluation.secrets == ["OPENAI_API_KEY"]
    assert evaluation.sections == {"evaluation": {}}
    assert load_config("configs/training/calc-2.toml", "training", tmp_path).sections == {}


def test_a_scaffold_is_not_written_over_another(tmp_path):
    init_rollout("calc", tmp_path)
    error = refused("CONFLICT", lambda: init_rollout("calc", tmp_path))
    assert "Refusing to overwrite" in error.message
    assert "--force" in error.message
    assert error.details["paths"] == [
        "rollouts/calc/",
        "configs/eval/calc.toml",
        "configs/training/calc.toml",
    ]
    init_rollout("calc", tmp_path, force=True)


def test_a_config_that_is_no_file_stops_before_anything_is_deleted(tmp_path):
    made = init_rollout("calc", tmp_path)
    made.eval_config.unlink()
    made.eval_config.mkdir()
    refused("CONFLICT", lambda: init_rollout("calc", tmp_path, force=True))
    assert (made.folder / "main.py").exists()
