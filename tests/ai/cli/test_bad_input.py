"""Whatever comes in - from the platform, the network, the machine, other processes - is answered with one clear error."""

import functools
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from osmosis_ai.cli.errors import ERROR_CODES
from osmosis_ai.platform.auth.store import credentials_path

RUN = {"id": "r-1", "name": "x", "status": "running", "created_at": "2026-07-01T10:00:00Z"}
PROGRESS = {"ingested": 1, "expected": 2}
ANSWERS = {
    "dataset list": ("GET", "/datasets", {"datasets": [{"id": "d", "file_size": 1}], "total_count": 1}),
    "dataset info x": ("GET", "/datasets/x", {"id": "d", "status": "error", "file_size": 1, "row_count": 2}),
    "dataset preview x": ("GET", "/datasets/x", {"id": "d", "data_preview": [{"a": 1}], "row_count": 2}),
    "dataset logs x": ("GET", "/datasets/x/logs", {"logs": [{"message": "m"}], "next_cursor": None}),
    "train list": ("GET", "/training-runs", {"training_runs": [{**RUN, "model": {"model_name": "m"}}]}),
    "train info x": (
        "GET",
        "/training-runs/x",
        {"training_run": {**RUN, "current_step": 1, "total_steps": 2}, "config": {"training": {"lr": 1}}},
    ),
    "eval list": ("GET", "/eval-runs", {"eval_runs": [{**RUN, "results": {"score": 1}, "config": {"n": 2}}]}),
    "eval info x": (
        "GET",
        "/eval-runs/x",
        {
            "eval_run": RUN,
            "config": {"n": 1},
            "results": {"graded": 1, "reward_stats": {"mean": 1, "pass_at_k": {"1": 1}}, "failures": []},
        },
    ),
    "eval download x": ("GET", "/eval-runs/x", {"eval_run": RUN}),
    "eval retry x --yes": ("POST", "/eval-runs/x/retry", {"id": "e", "retryable_samples": 1}),
    "benchmark list": (
        "GET",
        "/benchmarks",
        {"benchmarks": [{"id": "b", "task_count": 1, "task_sets": [{"name": "t", "task_count": 1}]}]},
    ),
    "benchmark runs list": ("GET", "/benchmark-runs", {"benchmark_runs": [RUN]}),
    "benchmark runs info x": (
        "GET",
        "/benchmark-runs/x",
        {
            "benchmark_run": RUN,
            "progress": PROGRESS,
            "agents": [{"id": "a", "agent_index": 0, "aggregates": {"reported_cost_usd": 1}}],
            "agent_metrics": [{"benchmark_run_agent_id": "a", "pass_at_k": [{"k": 2, "value": 1}]}],
            "totals": {"passed": 1},
        },
    ),
    "model info x": ("GET", "/models/x", {"model_name": "x", "deployment_status": "active"}),
    "model deploy x": ("POST", "/models/x/deploy", {"id": "m", "model_name": "x", "status": "active"}),
    "secret list": ("GET", "/environment-secrets", {"environment_secrets": [{"id": "s", "name": "A"}]}),
    "rollout list": ("GET", "/rollouts", {"rollouts": [{"id": "r", "last_synced_commit_sha": "abc"}]}),
    "auth whoami": (
        "GET",
        "/verify",
        {"user": {"id": "u", "email": "e"}, "expires_at": None, "workspace": {"id": "w"}},
    ),
    "dev server list": ("GET", "/dev-rollout-server", {"dev_rollout_servers": [{"id": "s"}]}),
}
PAGE = b"<!doctype html><title>Hotel Wi-Fi</title><p>Please log in."
REFUSALS = [
    (400, "VALIDATION"),
    (401, "AUTH_REQUIRED"),
    (402, "PLATFORM_ERROR"),
    (403, "PLATFORM_ERROR"),
    (404, "NOT_FOUND"),
    (405, "PLATFORM_ERROR"),
    (408, "PLATFORM_ERROR"),
    (409, "CONFLICT"),
    (410, "PLATFORM_ERROR"),
    (413, "PLATFORM_ERROR"),
    (422, "PLATFORM_ERROR"),
    (426, "UPGRADE_REQUIRED"),
    (429, "RATE_LIMITED"),
    (500, "PLATFORM_ERROR"),
    (502, "PLATFORM_ERROR"),
    (503, "PLATFORM_ERROR"),
    (504, "PLATFORM_ERROR"),
    (507, "PLATFORM_ERROR"),
    (302, "PLATFORM_ERROR"),
    (599, "PLATFORM_ERROR"),
]
BODIES = [
    b'{"error": "Sentence.", "code": "SOME_CODE"}',
    b'{"error": {"message": "x"}, "code": 7, "issues": [1, null, {"key": 2}]}',
    b'{"detail": [{"loc": ["body"], "msg": "x"}]}',
    b"[]",
    b"null",
    b"",
    b"\xff\xfe\x00",
    PAGE,
]


@pytest.fixture
def quick(monkeypatch):
    """Git is asked once, not at each of the many commands of a test."""
    from osmosis_ai.cli import workspace

    for name in ("worktree_root", "origin_identity"):
        monkeypatch.setattr(workspace, name, functools.cache(getattr(workspace, name)))


def one_error(ran):
    """The error of a failed command; there is exactly one, and nothing else."""
    assert ran.out == ""
    *warnings, last = map(json.loads, ran.err.splitlines())
    assert all("warning" in line for line in warnings), ran.err
    assert set(last) == {"schema_version", "command", "cli_version", "error"}
    assert last["error"]["code"] in ERROR_CODES
    assert last["error"]["message"].strip()
    return last["error"]


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_every_refusal_is_one_error_whatever_its_body(osmosis, workspace, platform, quick, status, code):
    for body in BODIES:
        platform.reset()
        platform.on("GET", "/datasets", status=status, content=body)
        ran = osmosis("dataset", "list", "--json")
        assert ran.code == 1
        assert one_error(ran)["code"] == code
        assert one_error(ran)["details"]["status_code"] == status


@pytest.mark.parametrize("command", ANSWERS)
def test_every_command_passes_refusals_on(osmosis, workspace, platform, quick, command):
    method, path, _ = ANSWERS[command]
    for status, code in ((401, "AUTH_REQUIRED"), (403, "PLATFORM_ERROR"), (500, "PLATFORM_ERROR")):
        platform.reset()
        platform.on(method, path, {"error": "Sentence.", "code": "SOME_CODE"}, status=status)
        ran = osmosis(*command.split(), "--json")
        assert ran.code == 1
        assert one_error(ran)["code"] == code
        assert "Error: " in osmosis(*command.split(), "--plain").err.splitlines()[-1]


@pytest.mark.parametrize("command", ANSWERS)
def test_what_is_no_json_object_is_named(osmosis, workspace, platform, quick, command):
    method, path, _ = ANSWERS[command]
    for content in (b"[1]", b"null", b'{"trunc', b"\xff\xfe", PAGE):
        platform.reset()
        platform.on(method, path, content=content)
        ran = osmosis(*command.split(), "--json")
        assert ran.code == 1
        error = one_error(ran)
        assert error["code"] == "PLATFORM_ERROR"
        assert "Invalid JSON response" in error["message"]
    assert "web page" in error["message"]
    assert "OSMOSIS_PLATFORM_URL" in error["message"]


def mutations(document, spoiled):
    """The document with one part replaced, once for each part."""
    keys = list(document) if isinstance(document, dict) else range(len(document))
    for number, key in enumerate(keys):
        yield type(document)(
            {**document, key: spoiled[number % len(spoiled)]}
            if isinstance(document, dict)
            else [spoiled[number % len(spoiled)] if n == key else item for n, item in enumerate(document)]
        )
        if isinstance(document[key], dict | list) and document[key]:
            for inner in mutations(document[key], spoiled):
                copy = dict(document) if isinstance(document, dict) else list(document)
                copy[key] = inner
                yield copy


@pytest.mark.parametrize("command", ANSWERS)
@pytest.mark.parametrize("mode", ["--json", "--plain"])
def test_parts_of_the_wrong_kind_never_end_in_a_traceback(osmosis, workspace, platform, quick, command, mode):
    method, path, answer = ANSWERS[command]
    for spoiled in ([None, "x", 7], [[1], {"a": 1}, True]):
        for document in mutations(answer, spoiled):
            platform.reset()
            platform.on(method, path, document)
            ran = osmosis(*command.split(), mode)
            assert ran.code in {0, 1}, (document, ran.err)
            assert "Traceback" not in ran.err
            if mode == "--plain":
                continue
            if ran.code == 0:
                assert ran.json["schema_version"] == 1
            else:
                error = one_error(ran)
                assert error["code"] != "INTERNAL" or f"answer to {method}" in error["message"], (
                    document,
                    error,
                )


def test_numbers_that_json_does_not_know(osmosis, workspace, platform):
    platform.on("GET", "/training-runs/x", content=b'{"training_run": {"id": "1", "reward": NaN}}')
    assert "GET /training-runs/x" in one_error(osmosis("train", "info", "x", "--json"))["message"]
    assert osmosis("train", "info", "x", "--plain").code == 0


def test_a_login_page_elsewhere_is_not_followed(osmosis, workspace, platform):
    headers = {"Location": "http://portal.example/login"}
    platform.on("GET", "/datasets", status=302, content=PAGE, headers=headers)
    message = one_error(osmosis("dataset", "list", "--json"))["message"]
    assert "http://portal.example/login" in message
    assert "network wants a login" in message
    assert len(platform.requests) == 1


@pytest.fixture
def raw_server(monkeypatch):
    """A server that sends these bytes to whoever connects, then hangs up."""
    import socket

    servers = []

    def start(content):
        listener = socket.create_server(("127.0.0.1", 0))
        servers.append(listener)

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(content)

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("OSMOSIS_PLATFORM_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")

    yield start
    for listener in servers:
        listener.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
    ],
)
def test_what_speaks_no_http_is_no_platform(osmosis, workspace, raw_server, content):
    raw_server(content)
    error = one_error(osmosis("dataset", "list", "--json"))
    assert error["code"] == "PLATFORM_ERROR"
    assert "Could not connect to platform" in error["message"]


@pytest.fixture
def account(platform):
    def on(expires_at):
        user = {"id": "u-1", "email": "a@example.com", "name": "A"}
        platform.on("GET", "/verify", {"user": user, "expires_at": expires_at, "token_id": "t-1"})

    return on


def test_a_clock_that_is_ahead_is_named(osmosis, platform, account, monkeypatch):
    """The platform's clock is a year behind this machine's; by its own clock the token is valid."""
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    there = datetime.now(UTC) - timedelta(days=365)
    monkeypatch.setattr(
        http.server.BaseHTTPRequestHandler,
        "date_time_string",
        lambda *_: there.strftime("%a, %d %b %Y %H:%M:%S GMT"),
    )
    account((there + timedelta(days=30)).isoformat())
    error = one_error(osmosis("auth", "login", "--token", "t", "--json"))
    assert error["code"] == "AUTH_REQUIRED"
    assert "clock" in error["message"]
    assert f"{there:%Y-%m-%d}" in error["message"]
    assert not credentials_path().exists()


def test_an_expired_login_says_when_and_by_which_clock(osmosis, bare_workspace, platform, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    credentials_path().parent.mkdir(parents=True)
    entry = {
        "access_token": "t",
        "expires_at": "2020-01-02T03:04:05+00:00",
        "user": {"id": "u", "email": "e"},
    }
    credentials_path().write_text(json.dumps({"version": 2, "platforms": {platform.url: entry}}))
    message = one_error(osmosis("dataset", "list", "--json"))["message"]
    assert "2020-01-02 03:04 UTC" in message
    assert "clock" in message
    assert "osmosis auth login" in message


def test_a_token_revoked_between_two_pages(osmosis, workspace, platform):
    first = {"datasets": [{"id": "d"}], "total_count": 60, "has_more": True, "next_offset": 50}
    platform.on("GET", "/datasets", first)
    platform.on("GET", "/datasets", {"error": "revoked", "code": "TOKEN_REVOKED"}, status=401)
    for mode in ("--json", "--plain"):
        ran = osmosis("dataset", "list", "--all", mode)
        assert (ran.code, ran.out) == (1, "")
        assert "was revoked" in ran.err


def test_a_token_revoked_during_a_download(osmosis, workspace, platform):
    platform.on("GET", "/eval-runs/x", {"eval_run": {**RUN, "name": "calm"}})
    platform.on("GET", "/eval-runs/r-1/samples/manifest", {"files": [{"path": "metrics.json", "size": 3}]})
    platform.on(
        "POST", "/eval-runs/r-1/samples/download-urls", {"error": "x", "code": "TOKEN_REVOKED"}, status=401
    )
    ran = osmosis("eval", "download", "x", "--json")
    assert one_error(ran)["code"] == "AUTH_REQUIRED"
    assert list((workspace / ".osmosis").rglob("*.partial")) == []


@pytest.mark.parametrize(
    "command", ["dataset list", "eval submit configs/eval/c.toml", "model list", "train stop x"]
)
def test_a_repository_without_origin(osmosis, workspace, platform, git, command):
    git(workspace, "remote", "remove", "origin")
    error = one_error(osmosis(*command.split(), "--json"))
    assert error["code"] == "VALIDATION"
    assert "Set `origin` to the Platform-connected repository" in error["message"]
    assert platform.requests == []


def run_program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "osmosis_ai.cli.main", *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("command", ["dataset info", "dataset validate", "eval submit"])
def test_a_name_that_is_no_text(workspace, command, flags):
    ran = run_program(*(word.encode() for word in (*command.split(), *flags)), b"caf\xe9.jsonl")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.count(b"\n") == 1
    assert b"caf\\xe9" in ran.stderr.replace(b"\\\\", b"\\")
    assert b"not UTF-8" in ran.stderr


def test_a_workspace_in_a_folder_whose_name_is_no_text(workspace, platform, tmp_path):
    strange = os.fsencode(tmp_path) + b"/caf\xe9"
    os.rename(os.fsencode(workspace), strange)
    platform.page("/datasets", "datasets", [])
    ran = run_program("--json", "dataset", "list", cwd=strange)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["workspace_directory"].endswith("caf\udce9")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_lacks_characters(workspace, platform, encoding):
    platform.page("/datasets", "datasets", [{"id": "d", "file_name": "café–東"}])
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = run_program("--json", "dataset", "list", env=environment)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["items"][0]["file_name"] == "café–東"
    assert run_program("dataset", "list", env=environment).returncode == 0


def test_logins_at_the_same_moment_are_all_kept(platform, account):
    """Each process logs in to an address of its own, all at once."""
    account((datetime.now(UTC) + timedelta(days=9)).isoformat())
    addresses = [f"{platform.url}/tenant-{n}" for n in range(6)]
    gate = threading.Barrier(len(addresses))

    def verify(request):
        gate.wait(60)  # all of them have read what is saved before the first one writes
        user = {"id": "u", "email": "e@example.com"}
        return SimpleNamespace(status=200, body={"user": user, "token_id": "t"}, headers={}, content=None)

    for address in addresses:
        platform.on("GET", f"/{address.rpartition('/')[2]}/api/cli/verify", verify)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "osmosis_ai.cli.main", "auth", "login", "--token", "t", "--json"],
            env={**os.environ, "OSMOSIS_PLATFORM_URL": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for address in addresses
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(addresses), outputs
    assert set(json.loads(credentials_path().read_text())["platforms"]) == set(addresses)
    assert credentials_path().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("command", ANSWERS)
def test_a_terminal_of_40_columns(osmosis, workspace, platform, monkeypatch, command):
    """Nothing is cut; only what is meant to be copied, and hints, may run over the edge."""
    monkeypatch.setenv("COLUMNS", "40")
    method, path, answer = ANSWERS[command]
    platform.on(method, path, answer)
    platform.on("GET", "/benchmark-runs/x/outputs/manifest", {"files": []})
    out = osmosis(*command.split()).out
    for line in out.splitlines():
        assert len(line) <= 40 or any(word in line for word in ("osmosis", "http", "not available")), out
    assert "…" not in out


@pytest.mark.parametrize(
    "words",
    [[], ["eval"], ["eval", "info"], ["eval", "run"], ["benchmark", "runs", "download"], ["doctor"]],
)
def test_help_in_40_columns(osmosis, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "40")
    out = osmosis(*words, "--help").out
    assert [line for line in out.splitlines() if len(line) > 40] == []


def test_a_busy_port_for_the_rollout_server_is_named_at_once(osmosis, workspace):
    (workspace / "configs/eval/c.toml").write_text(
        '[experiment]\nrollout = "calc"\nentrypoint = "main.py"\nmodel_path = "openai/x"\ndataset = "d"\n'
        "[secrets]\nrequired = []\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ran = osmosis("eval", "run", "configs/eval/c.toml", "--rollout-port", port, "--yes", "--json")
    assert (ran.code, ran.error["code"]) == (1, "VALIDATION")
    assert f"port {port} cannot be used: Address already in use" in ran.error["message"]


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: 1", "a b", "tökén"])
def test_a_token_that_no_header_can_carry(osmosis, workspace, platform, monkeypatch, token):
    for arguments in (["auth", "login", "--token", token], ["dataset", "list"]):
        monkeypatch.setenv("OSMOSIS_TOKEN", token)
        ran = osmosis(*arguments, "--json")
        assert (ran.code, ran.error["code"], platform.requests) == (1, "VALIDATION", [])
        assert "Copy it again" in ran.error["message"]
        assert token not in ran.error["message"]


def test_a_saved_token_that_no_header_can_carry_does_not_keep_a_user_logged_in(
    osmosis, platform, account, monkeypatch
):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    account("2099-01-01T00:00:00Z")
    osmosis("auth", "login", "--token", "t", "--json")
    path = credentials_path()
    path.write_text(path.read_text().replace('"access_token": "t"', '"access_token": "t t"'))
    assert osmosis("auth", "whoami", "--json").error["code"] == "VALIDATION"
    ran = osmosis("auth", "logout", "--yes", "--json")
    assert (ran.code, ran.json["resource"]["revoked"]) == (0, False)
    assert not path.exists()


@pytest.mark.parametrize("address", ["http://[::1", "http://x:99999", "ftp://x", "http://"])
def test_an_address_that_is_none(osmosis, workspace, platform, git, monkeypatch, address):
    git(workspace, "remote", "set-url", "origin", f"{address}/a/b.git")
    error = osmosis("dataset", "list", "--json").error
    assert (error["code"], "`origin`" in error["message"]) == ("VALIDATION", True)
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", address)
    error = osmosis("auth", "whoami", "--json").error
    assert (error["code"], "is no address of a platform" in error["message"]) == ("VALIDATION", True)


def test_a_folder_that_was_removed(osmosis, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    error = osmosis("dataset", "list", "--json").error
    assert (error["code"], "folder was removed" in error["message"]) == ("VALIDATION", True)


def test_without_git_it_is_said(osmosis, workspace, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    error = osmosis("dataset", "list", "--json").error
    assert error["code"] == "WORKSPACE_REQUIRED"
    assert "The program git was not found" in error["message"]


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(workspace, platform, closed):
    platform.page("/datasets", "datasets", [])
    command = f'exec "$0" -m osmosis_ai.cli.main dataset list {closed}'
    ran = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
