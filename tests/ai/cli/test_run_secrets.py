"""Secret values that are given for one run: `--secrets-file` of submits and retries."""

import json

import pytest

from osmosis_ai.cli.submit import preflight

SENTINEL = "hunter2-sentinel"
ACCEPTED = {
    "id": "e-1",
    "name": "fox",
    "status": "pending",
    "created_at": "2026-11-01T00:00:00Z",
}
RETRIED = {
    "id": "e-1",
    "name": "fox",
    "status": "pending",
    "workflow_id": "w",
    "retryable_samples": 3,
    "platform_url": "http://h/e",
}


@pytest.fixture
def config(workspace, monkeypatch):
    monkeypatch.setattr(preflight, "_discover", lambda *_: {})
    (workspace / "configs/eval/c.toml").write_text(
        '[experiment]\nrollout = "calc"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
        '[secrets]\nrequired = ["A", "B"]\n'
    )
    return "configs/eval/c.toml"


@pytest.fixture
def secrets_file(tmp_path):
    def write(text):
        path = tmp_path / "values.env"
        path.write_text(text)
        return str(path)

    return write


def test_values_of_the_file_are_sent_for_this_run(osmosis, config, platform, secrets_file):
    platform.page("/environment-secrets", "environment_secrets", [{"name": "B", "scope": "workspace"}])
    platform.on("POST", "/eval-runs", ACCEPTED)
    path = secrets_file(f"# mine\nexport A='{SENTINEL}'\nOTHER=unused\n")
    summary = osmosis("eval", "submit", config, "--secrets-file", path, "--json").error["details"]["summary"]
    assert {key: value for key, value in summary.items() if key.startswith("secret.")} == {
        "secret.A": "Run",
        "secret.B": "Workspace",
    }
    ran = osmosis("eval", "submit", config, "--secrets-file", path, "--yes", "--json")
    assert ran.code == 0
    assert platform.requests[-1].json["secrets"] == {"required": ["A", "B"], "provided": {"A": SENTINEL}}
    assert SENTINEL not in ran.out + ran.err


def test_without_the_file_the_environment_is_not_sent(osmosis, config, platform, monkeypatch):
    monkeypatch.setenv("A", SENTINEL)
    platform.page(
        "/environment-secrets", "environment_secrets", [{"name": n, "scope": "user"} for n in ("A", "B")]
    )
    platform.on("POST", "/eval-runs", ACCEPTED)
    assert osmosis("eval", "submit", config, "--yes", "--json").code == 0
    assert platform.requests[-1].json["secrets"] == {"required": ["A", "B"]}


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (f"A=1\n{SENTINEL} {SENTINEL}\n", "line 2"),
        (f"1A={SENTINEL}", "line 1"),
        (None, "cannot read"),
    ],
)
def test_a_bad_file_is_named_without_its_content(osmosis, config, platform, secrets_file, text, fragment):
    path = "/nowhere/x.env" if text is None else secrets_file(text)
    ran = osmosis("eval", "submit", config, "--secrets-file", path, "--yes", "--json")
    assert ran.error["code"] == "VALIDATION"
    assert fragment in ran.error["message"]
    assert SENTINEL not in ran.out + ran.err
    assert platform.requests == []


def test_an_echoed_value_is_taken_out_of_the_error(osmosis, config, platform, secrets_file):
    long_value = SENTINEL + "-and-more"
    platform.on(
        "POST",
        "/eval-runs",
        {"error": f"bad {long_value} and {SENTINEL}", "code": "X", "sent": {"value": "x", "k": [long_value]}},
        status=400,
    )
    path = secrets_file(f"A={SENTINEL}\nB={long_value}\n")
    error = osmosis("eval", "submit", config, "--secrets-file", path, "--yes", "--json").error
    assert error["message"] == "bad [REDACTED] and [REDACTED]"
    assert error["details"]["sent"] == {"value": "[REDACTED]", "k": ["[REDACTED]"]}


def test_a_run_is_retried(osmosis, workspace, platform, context):
    platform.on("POST", "/eval-runs/fox/retry", RETRIED)
    document = osmosis("eval", "retry", "fox", "--yes", "--json").json
    assert document["operation"] == "eval.retry"
    assert document["resource"] == {**RETRIED, **context}
    assert platform.requests[0].json == {}


def test_a_retry_of_a_stopped_run_goes_on(osmosis, workspace, platform):
    platform.on("POST", "/eval-runs/fox/retry", {**RETRIED, "retryable_samples": 0})
    message = osmosis("eval", "retry", "fox", "--yes", "--json").json["message"]
    assert message.endswith("is retried: what is missing is run.")
    platform.routes.pop(("POST", "/eval-runs/fox/retry"))
    platform.on("POST", "/eval-runs/fox/retry", {**RETRIED, "retryable_samples": 0, "status": "running"})
    assert osmosis("eval", "retry", "fox", "--yes", "--json").json["message"].endswith("is running already.")


def test_a_retry_is_asked_about(osmosis, workspace, platform):
    error = osmosis("eval", "retry", "fox", "--json").error
    assert error["details"] == {"prompt": "Retry this evaluation run?", "summary": {"Name": "fox"}}
    assert platform.requests == []


def needs_values(platform):
    body = {"error": "Give them again: A", "code": "RUN_SECRETS_REQUIRED", "run_secret_names": ["A"]}
    platform.on("POST", "/eval-runs/fox/retry", body, status=409)
    platform.on("POST", "/eval-runs/fox/retry", RETRIED)


@pytest.mark.parametrize("source", ["file", "environment"])
def test_values_of_the_run_are_given_again(osmosis, workspace, platform, secrets_file, monkeypatch, source):
    needs_values(platform)
    options = []
    if source == "file":
        options = ["--secrets-file", secrets_file(f"A={SENTINEL}")]
    else:
        monkeypatch.setenv("A", SENTINEL)
    ran = osmosis("eval", "retry", "fox", "--yes", "--json", *options)
    assert ran.code == 0
    assert [request.json for request in platform.requests] == [{}, {"secrets": {"A": SENTINEL}}]
    assert SENTINEL not in ran.out + ran.err


def test_missing_values_are_named(osmosis, workspace, platform):
    needs_values(platform)
    error = osmosis("eval", "retry", "fox", "--yes", "--json").error
    assert error["code"] == "INTERACTIVE_REQUIRED"
    assert error["details"] == {"missing": ["A"], "flags": ["--secrets-file"]}


def test_a_run_of_somebodys_machine_is_retried_there(osmosis, workspace, platform):
    run = {"config_path": "configs/eval/a b.toml", "eval_run_name": "fox"}
    platform.on("POST", "/eval-runs/fox/retry", {"error": "x", "local_run": run}, status=409)
    error = osmosis("eval", "retry", "fox", "--yes", "--json").error
    assert error["code"] == "VALIDATION"
    assert "osmosis eval run 'configs/eval/a b.toml' --name fox --retry-failed" in error["message"]
    assert json.loads(json.dumps(error["details"]["local_run"])) == run
