"""What the platform answers, as the user sees it."""

import json

import pytest

from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.api.client import PlatformClient


def fail(osmosis, platform, status, body, **more):
    platform.on("GET", "/datasets", body, status=status, **more)
    ran = osmosis("dataset", "list", "--json")
    assert (ran.code, ran.out) == (1, "")
    return ran.error


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "VALIDATION"),
        (401, "AUTH_REQUIRED"),
        (402, "PLATFORM_ERROR"),
        (403, "PLATFORM_ERROR"),
        (404, "NOT_FOUND"),
        (409, "CONFLICT"),
        (422, "PLATFORM_ERROR"),
        (426, "UPGRADE_REQUIRED"),
        (429, "RATE_LIMITED"),
        (500, "PLATFORM_ERROR"),
        (503, "PLATFORM_ERROR"),
    ],
)
def test_status_decides_the_code(osmosis, workspace, platform, status, code):
    error = fail(osmosis, platform, status, {"error": "Sentence.", "code": "SOME_CODE", "field": "f"})
    assert error["code"] == code
    assert error["details"] == {
        "platform_code": "SOME_CODE",
        "error": "Sentence.",
        "code": "SOME_CODE",
        "field": "f",
        "status_code": status,
    }


@pytest.mark.parametrize("code", ["BILLING_REQUIRED", "SUBSCRIPTION_REQUIRED"])
def test_billing(osmosis, workspace, platform, code):
    error = fail(osmosis, platform, 403, {"error": "x", "code": code})
    assert (error["code"], error["details"]["platform_code"]) == ("PLATFORM_ERROR", code)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "a", "message": "b"}, "a"),
        ({"message": "b"}, "b"),
        ({"detail": "x"}, 'API error: HTTP 400. Response: {"detail": "x"}'),
        ({"error": {"message": "x"}}, 'API error: HTTP 400. Response: {"error": {"message": "x"}}'),
    ],
)
def test_the_sentence_of_the_body_is_shown(osmosis, workspace, platform, body, message):
    assert fail(osmosis, platform, 400, body)["message"] == message


def test_a_body_that_is_no_json_is_cut(osmosis, workspace, platform):
    error = fail(osmosis, platform, 502, None, content=b"<html>" + b"x" * 1000)
    assert len(error["message"]) < 260
    assert error["details"] == {"status_code": 502}


@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        ("TOKEN_EXPIRED", "has expired"),
        ("TOKEN_REVOKED", "was revoked"),
        ("TOKEN_INVALID", "is not valid"),
    ],
)
def test_a_refused_environment_token_is_named(osmosis, workspace, platform, code, fragment):
    message = fail(osmosis, platform, 401, {"error": "ignored", "code": code})["message"]
    assert "OSMOSIS_TOKEN environment variable" in message
    assert "unset OSMOSIS_TOKEN" in message
    assert fragment in message


@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        ("GIT_SCOPE_HEADER_REQUIRED", "needs a workspace directory"),
        ("GIT_SCOPE_INVALID", "git remote get-url origin"),
        ("GIT_REPOSITORY_NOT_CONNECTED", "not connected to a workspace"),
        ("GIT_SCOPE_HEADER_ACCESS_DENIED", "osmosis auth whoami"),
    ],
)
def test_scope_errors_are_explained(osmosis, workspace, platform, code, fragment):
    error = fail(osmosis, platform, 404, {"error": "server words", "code": code})
    assert fragment in error["message"]
    assert error["details"]["error"] == "server words"


def test_426_has_a_text_of_its_own(osmosis, workspace, platform):
    message = fail(osmosis, platform, 426, {"status": "unsupported"})["message"]
    assert message.startswith("Upgrade required")
    assert "osmosis upgrade" in message


@pytest.mark.parametrize("content", [b"[]", b"nonsense", b'"x"'])
def test_success_without_an_object_is_an_error(osmosis, workspace, platform, content):
    assert "Invalid JSON" in fail(osmosis, platform, 200, None, content=content)["message"]


def test_no_connection(osmosis, workspace, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", "http://127.0.0.1:9")
    error = osmosis("dataset", "list", "--json").error
    assert error["code"] == "PLATFORM_ERROR"
    assert "Could not connect to platform" in error["message"]
    assert error["details"] == {}


@pytest.mark.parametrize(
    ("status", "code"),
    [("upgrade_available", "UPGRADE_AVAILABLE"), ("deprecated", "DEPRECATED"), ("current", None)],
)
def test_version_signals_warn_once(osmosis, workspace, platform, status, code):
    headers = {"X-Osmosis-Version-Status": status, "X-Osmosis-Version-Message": "Close to its end."}
    platform.on("GET", "/models/base", {"models": [], "total_count": 0}, headers=headers)
    platform.on("GET", "/models/lora", {"models": [], "total_count": 0}, headers=headers)
    lines = [json.loads(line) for line in osmosis("model", "list", "--json").err.splitlines()]
    assert [line["warning"] for line in lines] == (
        [{"code": code, "message": "Close to its end."}] if code else []
    )
    plain = osmosis("model", "list", "--plain").err
    assert ("warning: Close to its end.\n" in plain) is (code is not None)


@pytest.mark.parametrize(
    "name", ["X-Osmosis-Org", "x-osmosis-git", "X-Osmosis-CLI-Version", "X-Osmosis-Workspace"]
)
def test_reserved_headers_cannot_be_given(platform, name):
    with PlatformClient(platform.url) as client, pytest.raises(OsmosisError) as caught:
        client.get("/x", headers={name: "1"})
    assert caught.value.code == "RESERVED_HEADER_FORBIDDEN"
    assert platform.requests == []
