"""Which repository a checkout belongs to."""

import pytest

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.identity import origin_identity, parse_remote

OURS = "http://127.0.0.1:8400"


@pytest.mark.parametrize(
    ("url", "identity", "shown"),
    [
        ("https://github.com/Acme/Repo.git", "acme/repo", "https://github.com/Acme/Repo.git"),
        ("https://github.com/Acme/Repo/", "acme/repo", "https://github.com/Acme/Repo/"),
        ("git@github.com:Acme/Repo.git", "acme/repo", "ssh://git@github.com/Acme/Repo.git"),
        ("ssh://git@github.com:22/Acme/Repo.git", "acme/repo", "ssh://git@github.com:22/Acme/Repo.git"),
        ("https://user:tok@GitHub.com/a/b?x=1", "a/b", "https://GitHub.com/a/b"),
        (
            "http://127.0.0.1:8400/git/Team/Space.git",
            "team/space",
            "http://127.0.0.1:8400/git/Team/Space.git",
        ),
        ("http://me:tok@localhost:8400/team/space.git", "team/space", "http://localhost:8400/team/space.git"),
        ("http://127.0.0.1:8400/git/space.git", "git/space", "http://127.0.0.1:8400/git/space.git"),
    ],
)
def test_accepted_addresses(url, identity, shown):
    parsed = parse_remote(url, OURS)
    assert (parsed.identity, parsed.remote_url) == (identity, shown)


@pytest.mark.parametrize(
    ("url", "fragment"),
    [
        ("https://gitlab.com/a/b", "hosted on github.com"),
        ("https://www.github.com/a/b", "hosted on github.com"),
        ("/srv/git/a/b", "hosted on github.com"),
        ("file:///a/b", "hosted on github.com"),
        ("http://127.0.0.1:8401/git/a/b.git", "hosted on github.com"),
        ("https://127.0.0.1:8400/git/a/b.git", "hosted on github.com"),
        ("http://10.0.0.1:8400/git/a/b.git", "hosted on github.com"),
        ("https://github.com/a", "owner/repo"),
        ("https://github.com/a/b/c", "owner/repo"),
        ("https://github.com/a%2Fb/c", "owner/repo"),
        ("https://github.com/-a/b", "owner/repo"),
        ("https://github.com/a/b c", "whitespace"),
    ],
)
def test_refused_addresses(url, fragment):
    with pytest.raises(CLIError, match=fragment):
        parse_remote(url, OURS)


def test_no_password_is_ever_shown():
    with pytest.raises(CLIError) as caught:
        parse_remote("https://user:hunter2@gitlab.com/a/b", OURS)
    assert "hunter2" not in caught.value.message + str(caught.value.details)


def test_a_push_address_on_the_platform_decides(bare_workspace, git):
    assert origin_identity(bare_workspace, OURS).identity == "team/space"
    git(bare_workspace, "remote", "set-url", "--push", "origin", f"{OURS}/git/ours/space.git")
    assert origin_identity(bare_workspace, OURS).identity == "ours/space"
    git(bare_workspace, "remote", "set-url", "--push", "origin", "https://gitlab.com/x/y.git")
    assert origin_identity(bare_workspace, OURS).identity == "team/space"


def test_no_origin(bare_workspace, git):
    git(bare_workspace, "remote", "remove", "origin")
    with pytest.raises(CLIError, match="Set `origin` to the Platform-connected repository"):
        origin_identity(bare_workspace, OURS)


def test_the_platform_git_host_scopes_requests(osmosis, workspace, platform, git):
    git(workspace, "remote", "set-url", "origin", f"{platform.url}/git/Mine/Space.git")
    platform.page("/datasets", "datasets", [])
    ran = osmosis("dataset", "list", "--json")
    assert ran.json["git"] == {"identity": "mine/space", "remote_url": f"{platform.url}/git/Mine/Space.git"}
    assert platform.requests[0].headers["x-osmosis-git"] == "mine/space"
