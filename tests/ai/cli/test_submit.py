"""Submitting runs: everything local comes first, then the question, then one request."""

import json
import subprocess
import sys

import pytest

from osmosis_ai.cli.submit import preflight
from osmosis_ai.cli.submit.dependencies import unmet_dependencies

ACCEPTED = {
    "id": "ev-1",
    "name": "calm-heron",
    "status": "pending",
    "created_at": "2026-11-01T00:00:00Z",
    "platform_url": "http://h/x",
}
EXPERIMENT = 'rollout = "calc"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
ROLLOUT = """
print("noise on stdout")
from osmosis_ai.rollout import AgentWorkflow, Grader
class W(AgentWorkflow):
    async def run(self, ctx): ...
class G(Grader):
    async def grade(self, ctx): ...
"""


@pytest.fixture
def sound(monkeypatch):
    """The rollout passes its check; that check itself is tested with real processes below."""
    monkeypatch.setattr(preflight, "_discover", lambda *_: {"problems": [], "warnings": []})


@pytest.fixture
def config(workspace):
    def write(kind="eval", more="[secrets]\nrequired = []", experiment=""):
        (workspace / f"configs/{kind}/calc.toml").write_text(
            f"[experiment]\n{EXPERIMENT}{experiment}\n{more}\n"
        )
        return f"configs/{kind}/calc.toml"

    return write


def test_an_evaluation_is_submitted(osmosis, workspace, platform, config, sound, context):
    platform.on("POST", "/eval-runs", ACCEPTED)
    path = config(more='[evaluation]\nn = 2\n[env]\nA = "1"\n[secrets]\nrequired = []')
    document = osmosis("eval", "submit", path, "--yes", "--json").json
    assert document == {
        "schema_version": 1,
        "status": "success",
        "operation": "eval.submit",
        "resource": {
            "id": "ev-1",
            "name": "calm-heron",
            "status": "pending",
            "model_name": "m",
            "dataset_name": "d",
            "created_at": "2026-11-01T00:00:00Z",
            "url": "http://h/x",
            **context,
            "config": {
                "rollout": "calc",
                "entrypoint": "main.py",
                "model": "m",
                "dataset": "d",
                "branch": None,
                "commit_sha": None,
            },
        },
        "message": "Evaluation run submitted: calm-heron",
        "next_steps_structured": [
            {"action": "eval_info", "name": "calm-heron"},
            {"action": "eval_list"},
            {"action": "open_url", "url": "http://h/x"},
        ],
    }
    assert platform.calls() == ["POST /eval-runs"]
    assert platform.requests[0].json == {
        "experiment_config": {"rollout": "calc", "entrypoint": "main.py", "model_path": "m", "dataset": "d"},
        "evaluation_config": {"n": 2},
        "env_config": {"A": "1"},
    }


def test_a_training_run_is_submitted(osmosis, workspace, platform, config, sound):
    platform.on("POST", "/training-runs", ACCEPTED)
    ran = osmosis(
        "train", "submit", config("training", "[advanced]\nmax_steps = 3", 'branch = "b"'), "--yes", "--plain"
    )
    assert ran.code == 0
    assert ran.out.splitlines()[:5] == [
        "Training run submitted: calm-heron",
        "Status: pending",
        "Rollout: calc",
        "Model: m",
        "Dataset: d",
    ]
    body = platform.requests[0].json
    assert body["advanced_config"] == {"max_steps": 3}
    assert body["experiment_config"]["branch"] == "b"


def test_configs_are_found_from_any_folder_of_the_workspace(
    osmosis, workspace, platform, config, sound, monkeypatch
):
    path = config()
    monkeypatch.chdir(workspace / "data")
    platform.on("POST", "/eval-runs", ACCEPTED)
    assert osmosis("eval", "submit", path, "--yes", "--json").code == 0


def test_without_yes_nothing_is_sent_and_the_preview_is_in_the_details(
    osmosis, workspace, platform, config, sound, git
):
    ran = osmosis(
        "eval",
        "submit",
        config(experiment='branch = "b"', more='[env]\nB = "2"\nA = "1"\n[secrets]\nrequired = []'),
        "--json",
    )
    assert ran.code == 1
    assert ran.error["code"] == "INTERACTIVE_REQUIRED"
    details = ran.error["details"]
    assert details["prompt"] == "Submit this evaluation run?"
    assert list(details["summary"].items()) == [
        ("Rollout", "calc"),
        ("Entrypoint", "main.py"),
        ("Model", "m"),
        ("Dataset", "d"),
        ("Branch", "b"),
        ("env.A", "1"),
        ("env.B", "2"),
    ]
    notes, warnings = "\n".join(details["notes"]), "\n".join(details["warnings"])
    assert "Platform-connected repository" in notes
    assert "committed and pushed" in notes
    assert f"main @ {git(workspace, 'rev-parse', 'HEAD')[:8]}" in notes
    assert "Uncommitted changes" in warnings
    assert "no upstream" in warnings
    assert "may differ from the local branch" in warnings
    assert platform.requests == []


def test_unpushed_commits_and_unknown_commits_are_warnings(
    osmosis, workspace, platform, config, sound, git, tmp_path
):
    git(tmp_path, "clone", "-q", "--bare", str(workspace), "remote.git")
    git(workspace, "remote", "set-url", "--push", "origin", str(tmp_path / "remote.git"))
    path = config(experiment='commit_sha = "0123456789"')
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "more")
    git(workspace, "config", "protocol.https.allow", "never")
    git(workspace, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    git(workspace, "config", "branch.main.remote", "origin")
    git(workspace, "config", "branch.main.merge", "refs/heads/main")
    warnings = osmosis("eval", "submit", path, "--json").error["details"]["warnings"]
    assert warnings == [
        "Commit 01234567 is not known locally and the remote could not be asked; the platform looks it up.",
        "1 unpushed commit will not be part of the run.",
    ]


def test_warnings_are_shown_although_nobody_is_asked(osmosis, workspace, platform, config, sound):
    platform.on("POST", "/eval-runs", ACCEPTED)
    ran = osmosis("eval", "submit", config(), "--yes", "--json")
    assert ran.code == 0
    assert "Uncommitted changes will not be part of the run." in [
        json.loads(line)["warning"]["message"] for line in ran.err.splitlines()
    ]


@pytest.mark.parametrize(
    ("kind", "model", "more", "named"),
    [
        ("eval", "openai/x", "[secrets]\nrequired = []", "OPENAI_API_KEY"),
        ("eval", "gemini/x", "[secrets]\nrequired = []", "GEMINI_API_KEY"),
        ("eval", "openai/x", '[env]\nOPENAI_API_KEY = "k"\n[secrets]\nrequired = []', None),
        ("eval", "osmosis/tiny-multiply", "[secrets]\nrequired = []", None),
        ("training", "openai/x", "", None),
    ],
)
def test_a_provider_without_its_key_is_a_warning(
    osmosis, workspace, platform, config, sound, kind, model, more, named
):
    path = config(kind, more)
    text = (workspace / path).read_text().replace('model_path = "m"', f'model_path = "{model}"')
    (workspace / path).write_text(text)
    noun = "train" if kind == "training" else kind
    warnings = osmosis(noun, "submit", path, "--json").error["details"]["warnings"]
    told = [warning for warning in warnings if "is called with" in warning]
    assert [f"osmosis secret set {named}" in warning for warning in told] == ([True] if named else [])


def test_a_bad_config_never_asks(osmosis, workspace, platform, config):
    ran = osmosis("eval", "submit", config(more="[evaluation]\nbad = 1\n[secrets]\nrequired = []"), "--json")
    assert ran.error["code"] == "VALIDATION"
    assert ran.error["details"] == {
        "error": "Invalid eval config",
        "issues": [{"key": "evaluation.bad", "message": "Unrecognized key"}],
    }


def test_problems_of_later_stages_stand_below_the_error(osmosis, workspace, platform, config):
    ran = osmosis("eval", "submit", config(more="[evaluation]\nbad = 1\n[env]\na = 1"), "--plain")
    assert ran.code == 1
    first, heading, *also = ran.err.splitlines()
    assert first.startswith("Error: Missing [secrets] section")
    assert heading == "Also wrong in this file:"
    assert [line.split(": ")[0] for line in also] == ["  - evaluation.bad", "  - env.a", "  - env.a"]


def secrets(platform, *items):
    listed = [{"id": str(number), "name": name, "scope": scope} for number, (name, scope) in enumerate(items)]
    platform.page("/environment-secrets", "environment_secrets", listed)


def test_scopes_of_secrets_are_shown(osmosis, workspace, platform, config, sound):
    secrets(platform, ("A", "user"), ("B", "workspace"), ("C", "workspace"), ("C", "user"))
    path = config(more='[secrets]\nrequired = ["A", "B", "C"]')
    summary = osmosis("eval", "submit", path, "--json").error["details"]["summary"]
    assert {key: value for key, value in summary.items() if key.startswith("secret.")} == {
        "secret.A": "Personal",
        "secret.B": "Workspace",
        "secret.C": "Personal (overrides workspace)",
    }
    assert platform.requests[0].query["scope"] == "all"


def test_a_missing_secret_stops_before_the_question(osmosis, workspace, platform, config, sound):
    secrets(platform, ("A", "user"))
    ran = osmosis("eval", "submit", config(more='[secrets]\nrequired = ["A", "B", "D"]'), "--json")
    assert ran.error["code"] == "VALIDATION"
    message = ran.error["message"]
    assert message.startswith(
        "Could not find secret(s): B, D\n  osmosis secret set B\n  osmosis secret set D\n"
    )
    assert "Secrets default to personal scope" in message
    assert "--scope workspace" in message


def test_unknown_scopes_do_not_stop_a_submit(osmosis, workspace, platform, config, sound):
    platform.on("GET", "/environment-secrets", {"error": "x"}, status=500)
    summary = osmosis("eval", "submit", config(more='[secrets]\nrequired = ["A"]'), "--json").error[
        "details"
    ]["summary"]
    assert summary["secret.A"] == "–"


def test_the_platforms_issues_are_listed(osmosis, workspace, platform, config, sound):
    issues = [
        {"key": "training.lrr", "message": "Unrecognized key", "key_correction": "training.lr"},
        "plain words",
    ]
    platform.on(
        "POST",
        "/training-runs",
        {"error": "Invalid training config", "code": "INVALID_CONFIG", "issues": issues},
        status=400,
    )
    ran = osmosis("train", "submit", config("training", ""), "--yes", "--json")
    assert ran.error["code"] == "VALIDATION"
    assert (
        ran.error["message"]
        == "Invalid training config\n  - training.lrr: Unrecognized key (did you mean 'training.lr'?)\n  - plain words"
    )
    assert ran.error["details"]["platform_code"] == "INVALID_CONFIG"
    assert ran.error["details"]["status_code"] == 400
    assert ran.error["details"]["issues"] == issues


def test_the_platforms_issues_get_their_lines(osmosis, workspace, platform, config, sound):
    issues = [
        {"key": "training.lr", "message": "must be > 0"},
        {"key": "sampling.rollout_top_p", "message": "is odd"},
    ]
    refusal = {"error": "Invalid training config", "code": "INVALID_CONFIG", "issues": issues}
    platform.on("POST", "/training-runs", refusal, status=400)
    path = config("training", "[training]\n\nlr = -1")
    written = (workspace / path).read_text().splitlines()
    ran = osmosis("train", "submit", path, "--yes", "--json")
    assert ran.error["message"].splitlines()[1:] == [
        f"  - training.lr: must be > 0 (line {written.index('lr = -1') + 1})",
        "  - sampling.rollout_top_p: is odd",
    ]


def test_secrets_that_the_platform_misses_come_with_commands(osmosis, workspace, platform, config, sound):
    secrets(platform, ("A", "user"))
    platform.on(
        "POST",
        "/eval-runs",
        {"error": "Secret(s) not found: A", "platform_url": "http://h/w/secrets"},
        status=404,
    )
    ran = osmosis("eval", "submit", config(more='[secrets]\nrequired = ["A"]'), "--yes", "--json")
    assert ran.error["code"] == "NOT_FOUND"
    assert "osmosis secret set A" in ran.error["message"]
    assert "http://h/w/secrets" in ran.error["message"]


def submit_with(osmosis, workspace, config, source, project=None):
    (workspace / "rollouts/calc/main.py").write_text(source)
    if project is not None:
        (workspace / "rollouts/calc/pyproject.toml").write_text(
            f"[project]\nname = 'x'\ndependencies = {project}\n"
        )
    return osmosis("eval", "submit", config(), "--json").error


def test_a_sound_rollout_is_imported_elsewhere(osmosis, workspace, platform, config):
    error = submit_with(
        osmosis,
        workspace,
        config,
        ROLLOUT,
        ["osmosis-ai[server]>=0.3.0,<0.4", "httpx", "nope; python_version < '3'"],
    )
    assert error["code"] == "INTERACTIVE_REQUIRED"
    assert not any("not checked" in warning for warning in error["details"]["warnings"])


@pytest.mark.parametrize(
    ("source", "fragments"),
    [
        ("1 / 0", ["[IMPORT_FAILED]", "ZeroDivisionError"]),
        (ROLLOUT.replace("class G(Grader)", "class G(object)"), ["[MISSING_GRADER]"]),
        (ROLLOUT + "class W2(W): ...\n", ["[MULTIPLE_WORKFLOWS]"]),
        ("import os; os._exit(3)", ["status 3"]),
    ],
)
def test_an_unusable_rollout_is_an_error(osmosis, workspace, platform, config, source, fragments):
    error = submit_with(osmosis, workspace, config, source)
    assert error["code"] == "VALIDATION"
    assert "preflight failed for `rollouts/calc/main.py`" in error["message"]
    assert all(fragment in error["message"] for fragment in fragments)
    assert platform.requests == []


@pytest.mark.parametrize(
    ("source", "project"),
    [
        ("1 / 0", ["surely-not-installed>=1"]),
        ("import surely_not_installed", None),
        ("1 / 0", ["osmosis-ai>=99"]),
    ],
)
def test_missing_dependencies_only_warn(osmosis, workspace, platform, config, source, project):
    error = submit_with(osmosis, workspace, config, source, project)
    assert error["code"] == "INTERACTIVE_REQUIRED"
    assert "The rollout was not checked" in error["details"]["warnings"][0]


def test_the_same_rollout_is_not_imported_twice(osmosis, workspace, platform, config, monkeypatch):
    imports = []
    monkeypatch.setattr(
        preflight, "_discover", lambda folder, entrypoint: imports.append(entrypoint) or {"problems": []}
    )
    submit_with(osmosis, workspace, config, ROLLOUT)
    submit_with(osmosis, workspace, config, ROLLOUT)
    assert imports == ["main.py"]
    submit_with(osmosis, workspace, config, ROLLOUT + "# changed\n")
    assert len(imports) == 2
    (workspace / "rollouts/calc/tools.py").write_text("x = 1")
    submit_with(osmosis, workspace, config, ROLLOUT)
    assert len(imports) == 3


def test_extras_are_followed(tmp_path, monkeypatch):
    info = tmp_path / "needy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: needy\nVersion: 1.0\nRequires-Dist: surely-missing\n"
        'Requires-Dist: httpx; extra == "good"\nRequires-Dist: surely-missing; extra == "bad"\n'
        'Requires-Dist: needy[bad]; extra == "nested"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    project = tmp_path / "pyproject.toml"

    def unmet(*declared):
        project.write_text(f"[project]\ndependencies = {list(declared)}\n")
        return unmet_dependencies(project)

    assert (
        unmet(
            "needy",
            "needy[good]",
            "needy>=1",
            "needy[bad]; python_version < '3'",
            "x @ git+https://example.com/x",
        )
        == []
    )
    assert unmet("needy[bad]", "needy[good,nested]", "needy>=2") == [
        "needy[bad]",
        "needy[good,nested]",
        "needy>=2",
    ]
    assert unmet_dependencies(tmp_path / "none.toml") == []


def test_stderr_stays_json_when_the_rollout_is_noisy(workspace, platform, config):
    (workspace / "rollouts/calc/main.py").write_text(
        ROLLOUT + "import sys, warnings\nprint('x', file=sys.stderr)\nwarnings.warn('w')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-m", "osmosis_ai.cli.main", "eval", "submit", config(), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert answer.stdout == ""
    assert [json.loads(line)["error"]["code"] for line in answer.stderr.splitlines()] == [
        "INTERACTIVE_REQUIRED"
    ]
