"""Login, logout, whoami, and the file of saved logins."""

import json
import stat
from datetime import UTC, datetime, timedelta

import pytest

from osmosis_ai import __version__
from osmosis_ai.cli.output.clipboard import copy_text
from osmosis_ai.platform.api.client import PlatformClient
from osmosis_ai.platform.auth.device import authorize, wait_for_token
from osmosis_ai.platform.auth.store import Login, credentials_path, load_login, save_login
from osmosis_ai.platform.errors import AuthError, PlatformError
from osmosis_ai.platform.urls import DEFAULT_PLATFORM_URL, normalize_url, platform_url

USER = {"id": "u-1", "email": "ada@example.com", "name": "Ada"}
VERIFIED = {"user": USER, "expires_at": "2099-01-01T00:00:00Z", "token_id": "tok-1", "workspace": None}


@pytest.fixture
def ours(platform, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    return platform


def saved(url, token="old-token", **more):
    expires = datetime.now(UTC) + timedelta(days=1)
    login = Login(
        **{
            "platform_url": url,
            "token": token,
            "expires_at": expires,
            "user_id": "u-1",
            "email": "ada@example.com",
            "token_id": "tok-0",
        }
        | more
    )
    save_login(login)
    return login


def test_login_with_a_token_saves_it_for_its_owner_only(osmosis, ours):
    ours.on("GET", "/verify", VERIFIED)
    ran = osmosis("auth", "login", "--token", "secret-token", "--json")
    document = ran.json
    assert document["operation"] == "auth.login"
    assert document["resource"] == {
        "email": "ada@example.com",
        "name": "Ada",
        "expires_at": "2099-01-01T00:00:00+00:00",
        "platform_url": ours.url,
        "workspace": None,
        "source": "token",
        "verified": True,
        "saved": True,
        "token_store": "file",
    }
    assert [step["action"] for step in document["next_steps_structured"]] == [
        "platform.clone_repository",
        "doctor",
    ]
    assert "secret-token" not in ran.out + ran.err
    request = ours.requests[0]
    assert request.headers["authorization"] == "Bearer secret-token"
    assert request.headers["user-agent"] == f"osmosis-cli/{__version__}"
    assert request.headers["x-osmosis-cli-version"] == __version__
    path = credentials_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    entry = json.loads(path.read_text())["platforms"][ours.url]
    assert entry["access_token"] == "secret-token"
    assert entry["token_store"] == "file"
    assert entry["user"] == USER


def test_a_new_login_revokes_the_one_it_replaces(osmosis, ours):
    saved(ours.url)
    saved("http://other.example", token="kept")
    ours.on("GET", "/verify", VERIFIED)
    ours.on("DELETE", "/tokens/tok-0", status=204)
    assert osmosis("auth", "login", "--token", "new-token", "--json").code == 0
    assert ours.calls() == ["GET /verify", "DELETE /tokens/tok-0"]
    assert ours.requests[1].headers["authorization"] == "Bearer old-token"
    assert load_login(ours.url).token == "new-token"
    assert load_login("http://other.example").token == "kept"


def test_a_failed_login_keeps_the_old_one(osmosis, ours):
    saved(ours.url)
    ours.on("GET", "/verify", {"error": "no", "code": "TOKEN_INVALID"}, status=401)
    ran = osmosis("auth", "login", "--token", "bad", "--json")
    assert ran.code == 1
    assert ran.error["code"] == "AUTH_REQUIRED"
    assert load_login(ours.url).token == "old-token"


def test_an_environment_token_is_verified_and_not_saved(osmosis, ours, monkeypatch):
    monkeypatch.setenv("OSMOSIS_TOKEN", "env")
    ours.on("GET", "/verify", VERIFIED)
    document = osmosis("auth", "login", "--json").json
    assert document["message"] == "Verified OSMOSIS_TOKEN for ada@example.com."
    assert document["resource"]["source"] == "environment"
    assert document["resource"]["saved"] is False
    assert document["next_steps_structured"][0]["action"] == "unset_env"
    assert not credentials_path().exists()


@pytest.mark.parametrize("mode", ["--json", "--plain"])
def test_browser_login_needs_a_person(osmosis, ours, mode):
    ran = osmosis("auth", "login", mode)
    assert ran.code == 1
    assert ours.requests == []
    if mode == "--json":
        assert ran.error["code"] == "INTERACTIVE_REQUIRED"


def _device(ours, **more):
    ours.on(
        "POST",
        "/device/authorize",
        {
            "device_code": "dc",
            "user_code": "ABCD-1234",
            "verification_uri": f"{ours.url}/device",
            "expires_in": 900,
            "interval": 0,
        },
        **more,
    )


def test_device_login(osmosis, ours):
    signal = {
        "headers": {
            "X-Osmosis-Version-Status": "deprecated",
            "X-Osmosis-Version-Message": "Close to its end.",
        }
    }
    _device(ours, **signal)
    ours.on("POST", "/device/token", {"error": "authorization_pending"}, status=400)
    ours.on("POST", "/device/token", {"token": "device-token", **VERIFIED})
    ours.on("GET", "/verify", VERIFIED, **signal)
    ran = osmosis("auth", "login")
    assert ran.code == 0, ran.err
    assert ran.err.count("Close to its end.") == 1
    assert ours.requests[-1].headers["authorization"] == "Bearer device-token"
    assert "Login Successful" in ran.out
    assert "ABCD-1234" in ran.err
    assert ours.requests[1].json == {"device_code": "dc"}
    assert "authorization" not in ours.requests[0].headers
    assert load_login(ours.url).token == "device-token"


def test_the_code_of_a_login_goes_to_the_clipboard(tmp_path, monkeypatch, capsys):
    took = tmp_path / "took"
    program = tmp_path / "xclip"
    program.write_text(f"#!/bin/sh\ncat > {took}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert copy_text("ABCD-1234")
    assert took.read_text() == "ABCD-1234"
    program.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert not copy_text("ABCD-1234")
    assert capsys.readouterr().err == "\x1b]52;c;QUJDRC0xMjM0\x07"


@pytest.mark.parametrize(
    ("answers", "waits", "error"),
    [
        (
            [(400, "authorization_pending"), (400, "slow_down"), (400, "authorization_pending"), (200, None)],
            [5, 10, 10],
            None,
        ),
        ([(400, "slow_down")] * 8 + [(200, None)], [10, 15, 20, 25, 30, 30, 30, 30], None),
        ([(400, "access_denied")], [], "denied"),
        ([(400, "expired_token")], [], "expired"),
        ([(429, "authorization_pending")], [], "authorization_pending"),
        ([(500, "boom")], [], "boom"),
        ([(400, "authorization_pending")], [5] * 60, "not confirmed in time"),
    ],
)
def test_polling_follows_the_device_flow(platform, answers, waits, error):
    platform.on(
        "POST",
        "/device/authorize",
        {"device_code": "d", "user_code": "u", "verification_uri": "v", "expires_in": 300, "interval": 5},
    )
    for status, reason in answers:
        platform.on("POST", "/device/token", {"error": reason} if reason else {"token": "t"}, status=status)
    now, paused = [0.0], []

    def pause(seconds):
        paused.append(seconds)
        now[0] += seconds

    with PlatformClient(platform.url) as client:
        code = authorize(client)
        if error is None:
            assert wait_for_token(client, code, pause=pause, clock=lambda: now[0])["token"] == "t"
        else:
            with pytest.raises(PlatformError, match=error):
                wait_for_token(client, code, pause=pause, clock=lambda: now[0])
    assert paused == waits


def test_whoami_in_a_workspace(osmosis, workspace, platform):
    platform.on(
        "GET", "/verify", VERIFIED | {"workspace": {"id": "w", "name": "acme", "role": "owner", "more": 1}}
    )
    data = osmosis("auth", "whoami", "--json").json["data"]
    assert data["workspace"] == {"id": "w", "name": "acme", "role": "owner"}
    assert data["source"] == data["account"]["source"] == "environment"
    assert data["account"]["token_id"] == "tok-1"
    assert platform.requests[0].headers["x-osmosis-git"] == "team/space"
    ran = osmosis("auth", "whoami", "--plain")
    assert ran.out.splitlines() == [
        "Email: ada@example.com",
        "Name: Ada",
        "Workspace: acme",
        "Role: owner",
        f"Platform: {platform.url}",
        "Auth Source: environment",
        "Expires: 2099-01-01",
    ]


def test_whoami_asks_again_without_a_repository_that_is_unknown(osmosis, workspace, platform):
    platform.on("GET", "/verify", lambda r: _unknown_repository(r))
    data = osmosis("auth", "whoami", "--json").json["data"]
    assert data["workspace"] is None
    assert ["x-osmosis-git" in request.headers for request in platform.requests] == [True, False]


def _unknown_repository(request):
    from types import SimpleNamespace

    refused = "x-osmosis-git" in request.headers
    body = {"error": "no", "code": "GIT_REPOSITORY_NOT_CONNECTED"} if refused else VERIFIED
    return SimpleNamespace(status=404 if refused else 200, body=body, headers={}, content=None)


def test_whoami_logged_out_and_offline(osmosis, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", "http://127.0.0.1:9")
    ran = osmosis("auth", "whoami", "--json")
    assert (ran.code, ran.error["code"]) == (1, "AUTH_REQUIRED")
    monkeypatch.setenv("OSMOSIS_TOKEN", "t")
    ran = osmosis("auth", "whoami", "--json")
    assert (ran.code, ran.error["code"]) == (1, "PLATFORM_ERROR")
    assert "Could not connect to platform" in ran.error["message"]


def test_logout(osmosis, ours):
    assert osmosis("auth", "logout", "--json").json["status"] == "noop"
    saved(ours.url)
    ran = osmosis("auth", "logout", "--json")
    assert (ran.code, ran.error["code"], ran.error["details"]) == (1, "INTERACTIVE_REQUIRED", {})
    ours.on("DELETE", "/tokens/tok-0", status=204)
    document = osmosis("auth", "logout", "--yes", "--json").json
    assert document["resource"] == {
        "logged_in": False,
        "revoked": True,
        "env_token_set": False,
        "platform_url": ours.url,
    }
    assert load_login(ours.url) is None


def test_logout_completes_when_the_platform_refuses(osmosis, ours):
    saved(ours.url)
    ours.on("DELETE", "/tokens/tok-0", {"error": "boom"}, status=500)
    ran = osmosis("auth", "logout", "--yes", "--json")
    assert ran.json["resource"]["revoked"] is False
    assert json.loads(ran.err)["warning"]["code"] == "TOKEN_REVOKE_FAILED"
    assert load_login(ours.url) is None


FLAT = {
    "access_token": "flat-token",
    "token_type": "Bearer",
    "expires_at": "2099-01-01T00:00:00+00:00",
    "user": USER,
}


def test_a_flat_file_of_an_older_client_is_the_login_of_the_default_platform(monkeypatch):
    path = credentials_path()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(FLAT))
    assert platform_url() == DEFAULT_PLATFORM_URL
    assert load_login(DEFAULT_PLATFORM_URL).token == "flat-token"
    assert load_login("https://other.example") is None
    saved("https://other.example")
    assert json.loads(path.read_text())["platforms"][DEFAULT_PLATFORM_URL] == FLAT


@pytest.mark.parametrize(("expires_at", "shown"), [("2999-12-31T00:00:00Z", "never"), (None, None)])
def test_a_token_without_an_end_never_expires(osmosis, ours, monkeypatch, expires_at, shown):
    monkeypatch.setenv("OSMOSIS_TOKEN", "env")
    ours.on("GET", "/verify", VERIFIED | {"expires_at": expires_at})
    last = osmosis("auth", "whoami", "--plain").out.splitlines()[-1]
    assert last == f"Expires: {shown or (datetime.now(UTC) + timedelta(days=90)).date()}"


@pytest.mark.parametrize("status", [400, 403, 404, 409, 429, 500])
def test_other_refusals_of_a_login_are_the_platforms(osmosis, ours, status):
    ours.on("GET", "/verify", {"error": "No.", "code": "X"}, status=status)
    error = osmosis("auth", "login", "--token", "t", "--json").error
    assert (error["code"], error["message"]) == ("PLATFORM_ERROR", "No.")
    assert (error["details"]["status_code"], error["details"]["platform_code"]) == (status, "X")


@pytest.mark.parametrize("command", ["login", "logout"])
def test_logins_that_cannot_be_changed(osmosis, ours, command):
    """A folder in the place of the lock stands for a home that is read-only."""
    saved(ours.url)
    lock = credentials_path().with_name(".credentials.lock")
    lock.unlink()
    lock.mkdir()
    before = credentials_path().read_text()
    ours.on("GET", "/verify", VERIFIED)
    ours.on("DELETE", "/tokens/tok-0", status=204)
    options = ["--yes"] if command == "logout" else ["--token", "t"]
    ran = osmosis("auth", command, *options, "--json")
    assert (ran.code, ran.error["code"]) == (1, "CREDENTIALS_UNAVAILABLE")
    assert ("revoked and works no more" in ran.error["message"]) is (command == "logout")
    assert str(lock.parent) in ran.error["message"]
    assert credentials_path().read_text() == before


def test_a_device_login_that_cannot_be_saved_is_revoked(osmosis, ours):
    credentials_path().with_name(".credentials.lock").mkdir(parents=True)
    _device(ours)
    ours.on("POST", "/device/token", {"token": "device-token", **VERIFIED})
    ours.on("GET", "/verify", VERIFIED)
    ours.on("DELETE", "/tokens/tok-1", status=204)
    assert osmosis("auth", "login").code == 1
    assert ours.requests[-1].headers["authorization"] == "Bearer device-token"
    assert ours.calls()[-1] == "DELETE /tokens/tok-1"


def test_a_file_of_logins_that_cannot_be_read_is_not_set_aside(osmosis, ours):
    credentials_path().mkdir(parents=True)
    ours.on("GET", "/verify", VERIFIED)
    ran = osmosis("auth", "login", "--token", "t", "--json")
    assert (ran.code, ran.error["code"]) == (1, "CREDENTIALS_UNAVAILABLE")
    assert credentials_path().is_dir()


def test_a_refused_token_is_never_deleted(osmosis, bare_workspace, ours):
    saved(ours.url)
    ours.on("GET", "/datasets", {"error": "x", "code": "TOKEN_REVOKED"}, status=401)
    ran = osmosis("dataset", "list", "--json")
    assert ran.error["code"] == "AUTH_REQUIRED"
    assert "revoked" in ran.error["message"]
    assert load_login(ours.url).token == "old-token"


def test_an_expired_login_is_not_sent(osmosis, bare_workspace, ours):
    saved(ours.url, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    ran = osmosis("dataset", "list", "--json")
    assert (ran.code, ran.error["code"]) == (1, "AUTH_REQUIRED")
    assert ours.requests == []


@pytest.mark.parametrize(
    ("content", "code"),
    [("{", "CREDENTIALS_PARSE_FAILED"), ('{"version": 3, "logins": []}', "CREDENTIALS_VERSION_CHANGED")],
)
def test_a_damaged_file_counts_as_logged_out_and_is_kept_aside_by_the_next_login(
    osmosis, bare_workspace, ours, content, code
):
    path = credentials_path()
    path.parent.mkdir(parents=True)
    path.write_text(content)
    for command in (("dataset", "list"), ("auth", "whoami")):
        ran = osmosis(*command, "--json")
        warning, error = [json.loads(line) for line in ran.err.splitlines()]
        assert (warning["warning"]["code"], error["error"]["code"]) == (code, "AUTH_REQUIRED")
    ours.on("GET", "/verify", VERIFIED)
    assert osmosis("auth", "login", "--token", "t", "--json").code == 0
    assert path.with_name("credentials.json.bak").read_text() == content
    assert load_login(ours.url).token == "t"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"version": 2, "platforms": {"%s": {"access_token": "t"}}}',
        '{"version": 2, "platforms": {"%s": 1}}',
    ],
)
def test_logging_out_removes_a_damaged_login(osmosis, ours, content):
    path = credentials_path()
    path.parent.mkdir(parents=True)
    path.write_text(content.replace("%s", ours.url))
    assert osmosis("auth", "logout", "--yes", "--json").code == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("expires_at", "error"),
    [("2099-01-01T00:00:00", PlatformError), ("2020-01-01T00:00:00Z", AuthError), ("soon", PlatformError)],
)
def test_a_bad_expiry_is_refused(osmosis, ours, expires_at, error):
    ours.on("GET", "/verify", VERIFIED | {"expires_at": expires_at})
    ran = osmosis("auth", "login", "--token", "t", "--json")
    assert (ran.code, ran.error["code"]) == (1, error.default_code)


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (" HTTPS://Example.COM:443/ ", "https://example.com"),
        ("http://user:pw@Host:80/x/?q#f", "http://host/x"),
        ("localhost:3000", "http://localhost:3000"),
        ("example.com", "https://example.com"),
        ("http://[::1]:8400", "http://[::1]:8400"),
    ],
)
def test_addresses_have_one_spelling(given, normal):
    assert normalize_url(given) == normal


def test_which_platform_is_meant(monkeypatch):
    assert platform_url() == "http://127.0.0.1:8400"
    saved("https://one.example")
    assert platform_url() == "https://one.example"
    saved("https://two.example")
    assert platform_url() == "http://127.0.0.1:8400"
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", "https://three.example/")
    assert platform_url() == "https://three.example"


def test_a_token_is_not_sent_unencrypted_to_another_machine(osmosis, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", "http://10.255.255.1")
    ran = osmosis("auth", "login", "--token", "t", "--json")
    assert (ran.code, ran.error["code"]) == (1, "VALIDATION")
    assert "OSMOSIS_ALLOW_INSECURE_PLATFORM_URL" in ran.error["message"]
