"""`osmosis dev server`: development rollout servers."""

import json

import pytest

SERVER = {
    "id": "s-1",
    "name": "calc",
    "url": "http://h/s",
    "status": "running",
    "expires_at": "2026-07-01T10:00:00+00:00",
    "started_at": None,
}


@pytest.fixture
def pushed(workspace, git, monkeypatch):
    """HEAD is on the remote, as far as last heard from it, and the current folder is a rollout."""
    git(workspace, "update-ref", "refs/remotes/origin/main", "HEAD")
    monkeypatch.chdir(workspace / "rollouts/calc")
    return workspace


@pytest.mark.parametrize(("options", "hours"), [([], 24), (["--ttl-hours", "3"], 3), (["--no-ttl"], None)])
def test_a_server_is_started_at_head(osmosis, pushed, platform, git, context, options, hours):
    platform.on("POST", "/dev-rollout-server", SERVER)
    document = osmosis("dev", "server", "up", *options, "--json").json
    assert document["operation"] == "dev.server.up"
    assert document["resource"] == {**SERVER, **context}
    assert platform.requests[0].json == {
        "rollout_name": "calc",
        "commit_sha": git(pushed, "rev-parse", "HEAD"),
        "repository_path": "rollouts/calc",
        "entrypoint": "main.py",
        "ttl_hours": hours,
    }


def test_the_key_of_a_server_is_shown_once(osmosis, pushed, platform):
    platform.on("POST", "/dev-rollout-server", {**SERVER, "api_key": "dev-key"})
    assert "API key (shown only now): dev-key" in osmosis("dev", "server", "up", "--plain").out
    assert osmosis("dev", "server", "up", "--json").json["resource"]["api_key"] == "dev-key"


def test_uncommitted_changes_are_asked_about(osmosis, pushed, platform):
    (pushed / "rollouts/calc/new.py").write_text("")
    error = osmosis("dev", "server", "up", "--json").error
    assert error["code"] == "INTERACTIVE_REQUIRED"
    assert "Uncommitted changes" in error["details"]["warnings"][0]
    platform.on("POST", "/dev-rollout-server", SERVER)
    assert osmosis("dev", "server", "up", "--yes", "--json").code == 0


def test_elsewhere_than_in_a_rollout_is_wrong_usage(osmosis, workspace):
    assert osmosis("dev", "server", "up", "--json").error["code"] == "INVALID_USAGE"


def test_a_lifetime_below_an_hour_is_refused(osmosis, pushed):
    assert osmosis("dev", "server", "up", "--ttl-hours", "0").code == 2


def test_a_server_is_stopped(osmosis, workspace, platform, context):
    platform.on("DELETE", "/dev-rollout-server/s-1", {"status": "stopping"})
    document = osmosis("dev", "server", "down", "s-1", "--json").json
    assert document["resource"] == {"id": "s-1", "status": "stopping", **context}
    assert platform.requests[0].json == {}


def test_servers_are_listed(osmosis, workspace, platform):
    platform.page("/dev-rollout-server", "dev_rollout_servers", [SERVER])
    assert osmosis("dev", "server", "list", "--plain").out.splitlines() == [
        "s-1\tcalc\thttp://h/s\t2026-07-01 10:00 AM UTC\t[running]"
    ]
    assert osmosis("dev", "server", "list", "--json").json["items"] == [SERVER]


def test_logs_are_one_object_per_line(osmosis, workspace, platform):
    entries = [{"timestamp": "2026-07-01T10:00:00+00:00", "message": "a", "level": "info"}, {"message": "b"}]
    platform.on("GET", "/dev-rollout-server/s-1/logs", {"logs": entries})
    lines = osmosis("dev", "server", "logs", "s-1", "-n", "7", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"timestamp": "2026-07-01T10:00:00+00:00", "message": "a"},
        {"timestamp": None, "message": "b"},
    ]
    assert platform.requests[0].query == {"limit": "7", "direction": "older"}


def test_logs_are_followed_for_people(osmosis, workspace, platform):
    stream = (
        b": ping\n\n"
        b'event: line\nid: 1\ndata: {"timestamp": "2026-07-01T10:00:00+00:00",\ndata:  "message": "a"}\n\n'
        b'data: nonsense\n\ndata: [1]\n\ndata: {"message": "b\\u001b[2J"}\n\n'
    )
    platform.on("GET", "/dev-rollout-server/s-1/logs/stream", content=stream)
    ran = osmosis("dev", "server", "logs", "s-1")
    assert ran.code == 0
    assert ran.out.splitlines() == ["2026-07-01 10:00:00 AM UTC  a", r"–  b\x1b[2J"]
    assert platform.requests[0].query == {"tail": "100"}
    assert platform.requests[0].headers["accept"] == "text/event-stream"
    assert platform.requests[0].headers["x-osmosis-git"] == "team/space"


def test_a_refused_stream_is_an_error_like_others(osmosis, workspace, platform):
    platform.on(
        "GET", "/dev-rollout-server/s-1/logs/stream", {"error": "No such server.", "code": "X"}, status=404
    )
    ran = osmosis("dev", "server", "logs", "s-1", "--follow", "--json")
    assert (ran.code, ran.error["code"], ran.error["message"]) == (1, "NOT_FOUND", "No such server.")


def test_the_group_is_not_in_the_help(osmosis):
    assert "dev " not in osmosis("--help").out
    assert osmosis("dev").code == 0
