"""Reading config files: each stage refuses in its own words, and the first failing stage ends the reading."""

import pytest

from osmosis_ai.config import ConfigError, load_config

SECRETS = "[secrets]\nrequired = []"


def refused(path, kind, workspace_dir):
    with pytest.raises(ConfigError) as caught:
        load_config(path, kind, workspace_dir)
    assert caught.value.code == "VALIDATION"
    return caught.value


def test_a_complete_eval_config_becomes_a_request_body(workspace_dir, write_config):
    path = write_config(
        "eval",
        '[evaluation]\nn = 4\n[advanced]\nanything = 1\n[env]\nLOG_LEVEL = "INFO"\n[secrets]\nrequired = ["OPENAI_API_KEY"]',
        experiment='branch = "b"',
    )
    body = load_config(path, "eval", workspace_dir).request_body()
    assert body == {
        "experiment_config": {
            "rollout": "calc",
            "entrypoint": "main.py",
            "model_path": "m",
            "dataset": "d",
            "branch": "b",
        },
        "evaluation_config": {"n": 4},
        "advanced_config": {"anything": 1},
        "env_config": {"LOG_LEVEL": "INFO"},
        "secrets": {"required": ["OPENAI_API_KEY"]},
    }


def test_empty_tables_are_left_out_of_the_body(workspace_dir, write_config):
    path = write_config("training", "[training]\n[sampling]\n[env]\n[secrets]\nrequired = []")
    assert set(load_config(path, "training", workspace_dir).request_body()) == {"experiment_config"}


def test_values_of_tuning_tables_are_left_to_the_platform(workspace_dir, write_config):
    path = write_config("eval", f'[evaluation]\nlimit = -1\nn = "a"\n{SECRETS}')
    assert load_config(path, "eval", workspace_dir).sections["evaluation"] == {"limit": -1, "n": "a"}


@pytest.mark.parametrize(
    ("path", "fragment"),
    [
        ("configs/training/x.toml", "must live under `configs/eval/`"),
        ("../x.toml", "must live under `configs/eval/`"),
        ("configs/eval/x.json", "must be a .toml file under"),
        ("configs/eval/x.toml", "Config file not found"),
        ("/configs/eval/x.toml", "Got:"),
    ],
)
def test_location_is_checked_before_existence(workspace_dir, path, fragment):
    assert fragment in refused(path, "eval", workspace_dir).message


def test_a_symlink_out_of_the_folder_is_refused(workspace_dir):
    (workspace_dir / "elsewhere.toml").write_text("")
    (workspace_dir / "configs/eval/link.toml").symlink_to(workspace_dir / "elsewhere.toml")
    assert "must live under" in refused("configs/eval/link.toml", "eval", workspace_dir).message


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ("[experiment", "Invalid TOML in"),
        ("[evaluation]\nn = 1", "Missing [experiment] section"),
        ("experiment = 1", "[experiment] must be a table"),
        ("evaluation = 1\n[experiment]\n", "[evaluation] must be a table"),
        ("[experiment]\ndataset = 'd'", "Missing 'rollout' in [experiment]"),
        ("[experiment]\nrollout = 'calc'\ndataset = 'd'", "Missing 'entrypoint' in [experiment]"),
        ("[experiment]\nrollout = ''", "'' is not a valid rollout name"),
        (
            "[experiment]\nrollout = 'calc'\nentrypoint = ''",
            "entrypoint must resolve under rollouts/<rollout>/",
        ),
    ],
)
def test_broken_documents(workspace_dir, write_config, body, fragment):
    assert fragment in refused(write_config("eval", body=body), "eval", workspace_dir).message


@pytest.mark.parametrize(
    ("secrets", "fragment"),
    [
        ("", "Missing [secrets] section"),
        ("[secrets]\nrequired = []\nother = 1", "only supports the 'required' field"),
        ("[secrets]", "Missing 'required' in [secrets]"),
        ("[secrets]\nrequired = 'A'", "must be a list of strings"),
        ("[secrets]\nrequired = [1]", "must be a list of strings"),
        ("[secrets]\nrequired = ['A', 'A']", "Duplicate secret name(s)"),
        ("[secrets]\nrequired = ['a']", "Invalid secret name"),
        ("[env]\nA = 'x'\n[secrets]\nrequired = ['A']", "both [env] and [secrets]"),
        (f"[env]\na = 'x'\n{SECRETS}", "Invalid env var name"),
        (f"[env]\n_OSMOSIS_X = 'x'\n{SECRETS}", "reserved by the platform"),
    ],
)
def test_names_and_secrets(workspace_dir, write_config, secrets, fragment):
    assert fragment in refused(write_config("eval", secrets), "eval", workspace_dir).message


def test_training_may_omit_secrets(workspace_dir, write_config):
    assert load_config(write_config("training"), "training", workspace_dir).secrets == []


def test_all_key_problems_come_at_once_unknown_sections_first(workspace_dir, write_config):
    path = write_config(
        "eval",
        f"[evaluation]\nbad = 1\nlimits = 3\n[env]\nA = 1\n[llm]\nx = 1\n{SECRETS}",
        experiment='branch = "a b"\ncommit_sha = "xyz"',
    )
    error = refused(path, "eval", workspace_dir)
    assert error.message.startswith("Invalid eval config:\n  - llm: Unrecognized section")
    keys = [issue["key"] for issue in error.details["issues"]]
    assert keys == [
        "llm",
        "experiment.branch",
        "experiment.commit_sha",
        "experiment",
        "evaluation.bad",
        "evaluation.limits",
        "env.A",
    ]
    by_key = {issue["key"]: issue for issue in error.details["issues"]}
    assert by_key["evaluation.limits"]["key_correction"] == "evaluation.limit"
    assert "must not be empty or contain whitespace" in by_key["experiment.branch"]["message"]
    assert "hexadecimal Git commit SHA" in by_key["experiment.commit_sha"]["message"]
    assert by_key["experiment"]["message"] == "Provide either branch or commit_sha, not both"
    assert by_key["env.A"]["message"] == "must be a string, got 1"


def test_a_key_of_another_table_is_pointed_to_its_table(workspace_dir, write_config):
    path = write_config("training", "[training]\nrollout_temperature = 1.0")
    issue = refused(path, "training", workspace_dir).details["issues"][0]
    assert issue["key_correction"] == "sampling.rollout_temperature"


@pytest.mark.parametrize(
    ("rollout", "entrypoint", "fragment"),
    [
        ("a/b", "main.py", "not a valid rollout name"),
        ("..", "main.py", "not a valid rollout name"),
        ("outside", "main.py", "under rollouts/"),
        ("calc", "../other/main.py", "entrypoint must resolve under rollouts/calc/"),
        ("calc", "../other/main.py", "entrypoint must resolve under rollouts/<rollout>/"),
        ("calc", "/etc/passwd", "entrypoint must resolve under rollouts/calc/"),
        ("calc", "nothing.py", "Entrypoint file not found"),
    ],
)
def test_path_rules(workspace_dir, write_config, rollout, entrypoint, fragment):
    (workspace_dir / "rollouts/outside").symlink_to(workspace_dir)
    body = f'[experiment]\nrollout = "{rollout}"\nentrypoint = "{entrypoint}"\nmodel_path = "m"\ndataset = "d"\n{SECRETS}'
    error = refused(write_config("eval", body=body), "eval", workspace_dir)
    assert fragment in error.message
    if fragment == "Entrypoint file not found":
        assert "preflight failed for" in error.message
