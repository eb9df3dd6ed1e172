"""Where the token of a login is kept: in the keyring of the operating system, or in the file of logins."""

import json
import os
import sys

import pytest

from osmosis_ai.platform.auth import keyring_store
from osmosis_ai.platform.auth.store import credentials_path, load_login
from osmosis_ai.platform.urls import DEFAULT_PLATFORM_URL

TOKEN = "token-sentinel"
# What the package `keyring` offers, over a file: machines that run tests have no keyring of their own.
KEYRING = """
import json, os
from pathlib import Path
PLACE = Path(os.environ["HOME"]) / "keyring.json"
def _all():
    if os.environ.get("KEYRING_LOCKED"):
        raise RuntimeError("the keyring is locked")
    return json.loads(PLACE.read_text()) if PLACE.exists() else {}
def set_password(service, name, token):
    PLACE.write_text(json.dumps({**_all(), f"{service} {name}": token}))
def get_password(service, name):
    return _all().get(f"{service} {name}")
def delete_password(service, name):
    kept = _all()
    del kept[f"{service} {name}"]
    PLACE.write_text(json.dumps(kept))
"""


@pytest.fixture
def keyring(tmp_path, monkeypatch):
    """The package is installed; the function gives what it keeps."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "keyring.py").write_text(KEYRING)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)

    def kept():
        path = tmp_path / "home/keyring.json"
        return json.loads(path.read_text()) if path.exists() else {}

    yield kept
    sys.modules.pop("keyring", None)


@pytest.fixture
def ours(platform, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    user = {"id": "u-1", "email": "ada@example.com", "name": "Ada"}
    platform.on("GET", "/verify", {"user": user, "expires_at": "2099-01-01T00:00:00Z", "token_id": "t-1"})
    platform.on("DELETE", "/tokens/t-1", {})
    return platform


def entry(platform):
    return json.loads(credentials_path().read_text())["platforms"][platform.url]


def test_the_keyring_is_used_where_there_is_one(osmosis, ours, keyring):
    resource = osmosis("auth", "login", "--token", TOKEN, "--json").json["resource"]
    assert resource["token_store"] == "keyring"
    name = keyring_store.account(ours.url)
    assert name.startswith("platform:")
    assert len(name) == len("platform:") + 24
    assert keyring() == {f"osmosis-cli {name}": TOKEN}
    assert TOKEN not in credentials_path().read_text()
    assert (entry(ours)["token_store"], entry(ours)["keyring_account"]) == ("keyring", name)
    assert osmosis("auth", "whoami", "--json").code == 0
    assert ours.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"
    assert osmosis("auth", "logout", "--yes", "--json").json["resource"]["revoked"] is True
    assert keyring() == {}
    assert not credentials_path().exists()


def test_without_the_package_it_is_the_file(osmosis, ours):
    resource = osmosis("auth", "login", "--token", TOKEN, "--json").json["resource"]
    assert resource["token_store"] == "file"
    assert entry(ours)["access_token"] == TOKEN


def test_a_file_can_be_asked_for(osmosis, ours, keyring, monkeypatch):
    monkeypatch.setenv("OSMOSIS_TOKEN_STORE", "file")
    ran = osmosis("auth", "login", "--token", TOKEN, "--json")
    assert (ran.json["resource"]["token_store"], ran.err) == ("file", "")
    assert keyring() == {}


def test_a_locked_keyring_is_a_warning_and_the_file(osmosis, ours, keyring, monkeypatch):
    monkeypatch.setenv("KEYRING_LOCKED", "1")
    ran = osmosis("auth", "login", "--token", TOKEN, "--json")
    assert ran.json["resource"]["token_store"] == "file"
    assert json.loads(ran.err)["warning"]["code"] == "KEYRING_UNAVAILABLE"
    assert TOKEN not in ran.out + ran.err


@pytest.mark.parametrize("installed", [True, False])
def test_a_keyring_that_was_asked_for_must_work(osmosis, ours, request, monkeypatch, installed):
    if installed:
        request.getfixturevalue("keyring")
        monkeypatch.setenv("KEYRING_LOCKED", "1")
    monkeypatch.setenv("OSMOSIS_TOKEN_STORE", "keyring")
    ran = osmosis("auth", "login", "--token", TOKEN, "--json")
    assert (ran.code, ran.error["code"]) == (1, "KEYRING_UNAVAILABLE")
    assert "OSMOSIS_TOKEN_STORE=file" in ran.error["message"]
    assert not credentials_path().exists()


def test_another_store_is_refused(osmosis, ours, monkeypatch):
    monkeypatch.setenv("OSMOSIS_TOKEN_STORE", "cloud")
    assert osmosis("auth", "login", "--token", TOKEN, "--json").error["code"] == "VALIDATION"


def test_a_new_login_moves_the_token_and_revokes_the_old_one(osmosis, ours, keyring, monkeypatch):
    osmosis("auth", "login", "--token", "old", "--json")
    user = {"id": "u-1", "email": "ada@example.com"}
    ours.routes.pop(("GET", "/verify"))
    ours.on("GET", "/verify", {"user": user, "expires_at": "2099-01-01T00:00:00Z", "token_id": "t-2"})
    osmosis("auth", "login", "--token", TOKEN, "--json")
    assert list(keyring().values()) == [TOKEN]
    revoked = [request for request in ours.requests if request.method == "DELETE"]
    assert [request.headers["authorization"] for request in revoked] == ["Bearer old"]
    monkeypatch.setenv("OSMOSIS_TOKEN_STORE", "file")
    osmosis("auth", "login", "--token", TOKEN, "--json")
    assert keyring() == {}


@pytest.mark.parametrize("trouble", ["locked", "emptied"])
def test_a_login_whose_token_is_out_of_reach(osmosis, ours, keyring, monkeypatch, trouble):
    osmosis("auth", "login", "--token", TOKEN, "--json")
    if trouble == "locked":
        monkeypatch.setenv("KEYRING_LOCKED", "1")
    else:
        (credentials_path().parents[2] / "keyring.json").unlink()
    code = {"locked": "KEYRING_UNAVAILABLE", "emptied": "TOKEN_NOT_FOUND"}[trouble]
    assert osmosis("auth", "whoami", "--json").error["code"] == code
    ran = osmosis("auth", "logout", "--yes", "--json")
    assert ran.json["resource"]["revoked"] is False
    assert json.loads(ran.err.splitlines()[0])["warning"]["code"] == "TOKEN_REVOKE_FAILED"
    assert not credentials_path().exists()
    assert "OSMOSIS_TOKEN" not in os.environ


@pytest.mark.parametrize("name", ["default", "ada@example.com"])
def test_a_token_that_an_older_client_put_into_the_keyring(keyring, name):
    keyring_store.put(name, TOKEN)
    user = {"id": "u-1", "email": "ada@example.com"}
    path = credentials_path()
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"token_store": "keyring", "expires_at": "2099-01-01T00:00:00+00:00", "user": user})
    )
    login = load_login(DEFAULT_PLATFORM_URL)
    assert (login.token, login.keyring_account) == (TOKEN, name)
