"""What comes from elsewhere cannot drive the terminal; narrow terminals get lines; empty lists say what to do."""

import re

import pytest

EVIL = "a\x1b]0;owned\x07b\x1b[2Jc\x9bd\x7fe\x08f\rg\u202eh\u2066i"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TURNED = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def entry(message):
    return {"timestamp": "2026-07-01T10:00:00Z", "level": "info", "step": "s", "message": message}


@pytest.mark.parametrize(
    ("noun", "path"), [("dataset", "datasets"), ("train", "training-runs"), ("eval", "eval-runs")]
)
@pytest.mark.parametrize("flags", [[], ["--plain"], ["--json"]])
def test_control_characters_in_logs_are_shown(osmosis, workspace, platform, noun, path, flags):
    platform.on("GET", f"/{path}/x/logs", {"logs": [entry(EVIL)], "next_cursor": None})
    ran = osmosis(noun, "logs", "x", *flags)
    assert ran.code == 0
    assert not RAW.search(ran.out), ran.out
    if flags == ["--json"]:
        assert ran.json["items"][0]["message"] == EVIL
    else:
        assert r"a\x1b]0;owned\x07b\x1b[2Jc\x9bd\x7fe\x08f" in ran.out
        assert r"g\u202eh\u2066i" in ran.out


@pytest.mark.parametrize("flags", [[], ["--plain"], ["--json"]])
def test_control_characters_in_names_previews_and_errors_are_shown(osmosis, workspace, platform, flags):
    found = {"id": "1", "file_name": EVIL, "status": "uploaded", "data_preview": [{EVIL: EVIL}]}
    platform.page("/datasets", "datasets", [found])
    platform.on("GET", "/datasets/x", found)
    platform.on("GET", "/datasets/y", {"error": f"no {EVIL}", "code": "NOT_FOUND"}, status=404)
    run = {"id": "1", "name": EVIL, "status": "failed", "error": EVIL, "platform_url": EVIL}
    platform.on("GET", "/training-runs/z", {"training_run": run, "entrypoint": EVIL, "branch": EVIL})
    for command in ("dataset list", "dataset preview x", "dataset info x", "dataset info y", "train info z"):
        ran = osmosis(*command.split(), *flags)
        assert not RAW.search(ran.out + ran.err), command
        assert bool(TURNED.search(ran.out + ran.err)) is (flags == ["--json"]), command
        if not flags and "preview" not in command:
            assert r"a\x1b]0;owned" in ran.out + ran.err, command


def test_lines_of_a_value_stay_lines_and_rows_stay_rows(osmosis, workspace, platform):
    platform.on("GET", "/datasets/x/logs", {"logs": [entry("one\ntwo\tthree")], "next_cursor": None})
    assert osmosis("dataset", "logs", "x", "--plain").out.endswith("\tone two three\n")
    assert osmosis("dataset", "logs", "x").out.count("two") == 1


def test_more_logs_are_reached_by_the_cursor_not_by_all(osmosis, workspace, platform):
    platform.on("GET", "/eval-runs/x/logs", {"logs": [entry("m")], "next_cursor": "41"})
    out = osmosis("eval", "logs", "x", "--limit", "1").out
    assert "Showing 1. Older entries: osmosis eval logs x --limit 1 --cursor 41" in out
    assert "--all" not in out


@pytest.mark.parametrize(
    ("command", "path", "key", "todo"),
    [
        ("dataset list", "/datasets", "datasets", "osmosis dataset upload <file>"),
        ("train list", "/training-runs", "training_runs", "osmosis train submit configs/training/"),
        ("eval list", "/eval-runs", "eval_runs", "osmosis eval submit configs/eval/"),
        ("rollout list", "/rollouts", "rollouts", "osmosis rollout init <name>"),
        ("rollout list --branch mine", "/rollouts", "rollouts", "git push -u origin mine"),
        ("secret list", "/environment-secrets", "environment_secrets", "osmosis secret set <name>"),
        ("model list --type base", "/models/base", "models", "model_path"),
        ("model list --type lora", "/models/lora", "models", "osmosis train submit"),
    ],
)
def test_an_empty_list_says_what_to_do_next(osmosis, workspace, platform, command, path, key, todo):
    platform.page(path, key, [])
    assert todo in osmosis(*command.split()).out
    assert osmosis(*command.split(), "--plain").out == ""


def test_a_branch_that_was_pushed_is_not_to_be_pushed_again(osmosis, workspace, platform, git):
    head = git(workspace, "rev-parse", "HEAD")
    git(workspace, "update-ref", "refs/remotes/origin/mine", head)
    platform.page("/rollouts", "rollouts", [])
    out = osmosis("rollout", "list", "--branch", "mine").out
    assert f"There is no rollout at {head[:8]}" in out
    assert "git push -u" not in out


@pytest.mark.parametrize("columns", ["40", "80"])
def test_an_empty_table_that_would_break_words_is_left_out(
    osmosis, workspace, platform, monkeypatch, columns
):
    monkeypatch.setenv("COLUMNS", columns)
    platform.page("/benchmark-runs", "benchmark_runs", [])
    title, hint = osmosis("benchmark", "runs", "list").out.splitlines()
    assert (title, hint.startswith("No benchmark runs yet.")) == ("Benchmark Runs", True)


def test_an_empty_log_says_so(osmosis, workspace, platform):
    platform.on("GET", "/eval-runs/x/logs", {"logs": [], "next_cursor": None})
    assert "Nothing has been logged yet." in osmosis("eval", "logs", "x").out


@pytest.mark.parametrize("columns", ["40", "80"])
def test_where_a_table_would_break_words_there_are_lines(osmosis, workspace, platform, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    run = {
        "id": "1",
        "name": "quiet-heron-of-the-north",
        "status": "completed",
        "model": {"model_name": "osmosis/tiny-multiply"},
        "rollout": {"name": "multiply-local-openai"},
        "reward": 0.5,
        "created_at": "2026-07-01T10:00:00Z",
        "creator_name": "Ada Lovelace",
    }
    platform.page("/training-runs", "training_runs", [run])
    lines = osmosis("train", "list").out.splitlines()
    assert "Name: quiet-heron-of-the-north" in lines
    assert "Status: [completed]" in lines
    assert "Rollout: multiply-local-openai" in lines
    assert max(map(len, lines)) <= int(columns)
    assert lines[-2:] == ["", "Details: osmosis train info <name>"]
    monkeypatch.setenv("COLUMNS", "160")
    assert "Name: " not in osmosis("train", "list").out


@pytest.mark.parametrize("columns", ["0", "wide", ""])
def test_a_width_that_is_none_does_not_hide_the_output(osmosis, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert "multiply-local-openai" in osmosis("template", "list").out


def test_details_on_a_narrow_terminal_are_lines(osmosis, workspace, platform, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    platform.on(
        "GET", "/datasets/x", {"id": "1", "file_name": "arithmetic-with-long-name", "status": "uploaded"}
    )
    assert "File: arithmetic-with-long-name" in osmosis("dataset", "info", "x").out.splitlines()
