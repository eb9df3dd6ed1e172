"""A pinned commit is looked up on the remote before a run is submitted."""

import os

import pytest

from osmosis_ai.cli.identity import Identity
from osmosis_ai.cli.remote_commits import Presence, presence_on_remote

ELSEWHERE = Identity("team/space", "http://127.0.0.1:1/git/team/space.git")
GITHUB = Identity("team/space", "https://github.com/Team/Space.git")
UNKNOWN_SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def clone(bare_workspace, git, tmp_path):
    """The workspace with a real remote that has all its commits; nothing has been fetched."""
    git(tmp_path, "clone", "-q", "--bare", str(bare_workspace), "remote.git")
    git(bare_workspace, "remote", "set-url", "origin", str(tmp_path / "remote.git"))
    return bare_workspace


@pytest.fixture
def gh(tmp_path, monkeypatch):
    """A GitHub CLI that gives one answer."""

    def answer(status, stderr="", stdout=""):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        tool = folder / "gh"
        tool.write_text(f"#!/bin/sh\necho '{stderr}' >&2\necho '{stdout}'\nexit {status}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return answer


def commit(git, folder):
    git(folder, "commit", "-q", "--allow-empty", "-m", "more")
    return git(folder, "rev-parse", "HEAD")


def test_a_pushed_commit_is_found(clone, git):
    old = git(clone, "rev-parse", "HEAD")
    commit(git, clone)
    git(clone, "push", "-q", "origin", "HEAD:main")
    git(clone, "update-ref", "-d", "refs/remotes/origin/main")
    for sha in (old, old[:7], git(clone, "rev-parse", "HEAD")):
        assert presence_on_remote(clone, ELSEWHERE, sha) is Presence.FOUND


def test_a_fetched_branch_answers_without_the_remote(clone, git):
    sha = git(clone, "rev-parse", "HEAD")
    git(clone, "update-ref", "refs/remotes/origin/main", sha)
    git(clone, "remote", "set-url", "origin", "/nowhere")
    assert presence_on_remote(clone, ELSEWHERE, sha) is Presence.FOUND


@pytest.mark.parametrize("sha", [None, UNKNOWN_SHA])
def test_what_no_branch_of_the_remote_has_is_absent(clone, git, sha):
    assert presence_on_remote(clone, ELSEWHERE, sha or commit(git, clone)) is Presence.ABSENT


def test_a_branch_that_is_not_known_here_leaves_it_open(clone, git, tmp_path):
    git(tmp_path, "clone", "-q", str(tmp_path / "remote.git"), "other")
    commit(git, tmp_path / "other")
    git(tmp_path / "other", "push", "-q", "origin", "HEAD:refs/heads/theirs")
    assert presence_on_remote(clone, ELSEWHERE, UNKNOWN_SHA) is Presence.UNKNOWN


def test_a_remote_that_does_not_answer_leaves_it_open(clone, git):
    git(clone, "remote", "set-url", "origin", "/nowhere")
    assert presence_on_remote(clone, ELSEWHERE, UNKNOWN_SHA) is Presence.UNKNOWN


@pytest.mark.parametrize(
    ("status", "stderr", "presence"),
    [
        (0, "", Presence.FOUND),
        (1, "gh: No commit found for SHA (HTTP 422)", Presence.ABSENT),
        (1, "gh: Not Found (HTTP 404)", Presence.UNKNOWN),
        (4, "not logged in", Presence.UNKNOWN),
    ],
)
def test_the_github_client_is_asked_first(clone, git, gh, status, stderr, presence):
    git(clone, "remote", "set-url", "origin", "/nowhere")
    gh(status, stderr)
    assert presence_on_remote(clone, GITHUB, UNKNOWN_SHA) is presence


@pytest.fixture
def pinned(workspace, monkeypatch):
    from osmosis_ai.cli.submit import preflight

    monkeypatch.setattr(preflight, "_discover", lambda *_: {})

    def write(sha):
        (workspace / "configs/eval/c.toml").write_text(
            '[experiment]\nrollout = "calc"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
            f'commit_sha = "{sha}"\n[secrets]\nrequired = []\n'
        )

    return write


@pytest.mark.parametrize(
    ("local", "fragment"),
    [
        (True, "exists locally but was not found on origin"),
        (False, "was not found on the connected repository"),
    ],
)
def test_a_missing_commit_stops_the_submit(osmosis, workspace, platform, git, gh, pinned, local, fragment):
    gh(1, "gh: No commit found for SHA (HTTP 422)")
    pinned(git(workspace, "rev-parse", "HEAD") if local else UNKNOWN_SHA)
    error = osmosis("eval", "submit", "configs/eval/c.toml", "--yes", "--json").error
    assert error["code"] == "VALIDATION"
    assert fragment in error["message"]
    assert platform.requests == []


@pytest.mark.parametrize("local", [True, False])
def test_an_open_question_is_a_warning_at_most(osmosis, workspace, platform, git, gh, pinned, local):
    gh(1, "gh: Not Found (HTTP 404)")
    git(workspace, "config", "protocol.https.allow", "never")
    pinned(git(workspace, "rev-parse", "HEAD") if local else UNKNOWN_SHA)
    details = osmosis("eval", "submit", "configs/eval/c.toml", "--json").error.get("details")
    warned = any("is not known locally" in text for text in details.get("warnings", []))
    assert warned is not local


@pytest.mark.parametrize(
    ("address", "renamed"),
    [
        ("https://github.com/Team/Space.git", "https://github.com/Crew/Hall.git"),
        ("git@github.com:team/space", "git@github.com:Crew/Hall"),
    ],
)
def test_a_renamed_repository_is_named(osmosis, workspace, platform, git, gh, address, renamed):
    git(workspace, "remote", "set-url", "origin", address)
    gh(0, stdout="Crew/Hall")
    platform.on("GET", "/datasets", {"error": "x", "code": "GIT_REPOSITORY_NOT_CONNECTED"}, status=404)
    assert f"git remote set-url origin {renamed}" in osmosis("dataset", "list", "--json").error["message"]


@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (0, "team/SPACE", "GIT_REPOSITORY_NOT_CONNECTED"),
        (1, "Crew/Hall", "GIT_REPOSITORY_NOT_CONNECTED"),
        (0, "no name", "GIT_REPOSITORY_NOT_CONNECTED"),
        (0, "Crew/Hall", "OTHER"),
    ],
)
def test_otherwise_nothing_is_said_of_a_rename(osmosis, workspace, platform, gh, status, name, code):
    gh(status, stdout=name)
    platform.on("GET", "/datasets", {"error": "x", "code": code}, status=404)
    assert "set-url" not in osmosis("dataset", "list", "--json").error["message"]
