"""Models and secrets."""

import json

import pytest

BASE = {
    "id": "m1",
    "model_name": "osmosis/tiny-multiply",
    "base_model": "b",
    "creator_name": None,
    "created_at": None,
    "updated_at": None,
    "x": 1,
}
LORA = {
    "id": "l1",
    "model_name": "brave-otter-10",
    "base_model": "osmosis/tiny-multiply",
    "training_run_name": "brave-otter",
    "checkpoint_step": 10,
    "reward": 0.756,
    "created_at": "2026-11-01T00:00:00Z",
}
DEPLOYED = {"deployment_status": "active", "deployed_at": "2026-11-01T00:00:00Z", "deployed_by": "Ada"}
INFO_KEYS = {"hf_upload_status", "hf_url", "uploaded_by", "inference_model"}
SECRET = {
    "id": "s1",
    "name": "API_KEY",
    "scope": "user",
    "created_at": None,
    "updated_at": "2026-11-01T00:00:00Z",
    "creator_name": "A",
    "updater_name": "B",
    "value": "s3cret",
}
SECRET_KEYS = set(SECRET) - {"value"}


def models(platform, *lora, **quota):
    platform.page("/models/base", "models", [BASE])
    platform.page("/models/lora", "models", list(lora), **quota)


def test_model_list_has_two_sections(osmosis, workspace, platform, context):
    models(
        platform,
        LORA | DEPLOYED,
        LORA | {"deployment_status": None},
        active_deployments=2,
        max_active_deployments=5,
    )
    document = osmosis("model", "list", "--json").json
    assert set(document) == {
        "schema_version",
        "base_models",
        "lora_models",
        "active_deployments",
        "max_active_deployments",
        *context,
    }
    assert set(document["base_models"]) == {"items", "total_count", "has_more", "next_offset"}
    assert document["base_models"]["items"] == [{key: value for key, value in BASE.items() if key != "x"}]
    assert set(document["lora_models"]["items"][0]) == set(LORA | DEPLOYED)
    lines = osmosis("model", "list", "--plain").out.splitlines()
    assert lines == [
        "Base Models:",
        "osmosis/tiny-multiply\t–\t–",
        "LoRA Models:",
        "brave-otter-10\tosmosis/tiny-multiply\tbrave-otter\t10\t0.76\t2026-11-01 12:00 AM UTC\t[deployed]",
        "brave-otter-10\tosmosis/tiny-multiply\tbrave-otter\t10\t0.76\t2026-11-01 12:00 AM UTC\t–",
    ]
    assert "2 of 5 inference deployments used" in osmosis("model", "list").out


def test_without_deployments_their_keys_and_column_are_gone(osmosis, workspace, platform):
    models(platform, LORA)
    document = osmosis("model", "list", "--json").json
    assert set(document["lora_models"]["items"][0]) == set(LORA)
    assert "active_deployments" not in document
    assert len(osmosis("model", "list", "--plain").out.splitlines()[-1].split("\t")) == 6


@pytest.mark.parametrize(
    ("kind", "path", "quota"), [("base", "/models/base", False), ("lora", "/models/lora", True)]
)
def test_one_type_is_a_plain_list(osmosis, workspace, platform, kind, path, quota):
    models(platform, LORA, active_deployments=0, max_active_deployments=5)
    document = osmosis("model", "list", "--type", kind, "--all", "--json").json
    assert {"items", "total_count", "has_more", "next_offset"} <= set(document)
    assert ("active_deployments" in document) is quota
    assert platform.calls() == [f"GET {path}"]


def test_an_unknown_type(osmosis):
    assert (
        "Type must be 'all', 'base', or 'lora'"
        in osmosis("model", "list", "--type", "x", "--json").error["message"]
    )


def test_model_info_tells_how_to_call_a_deployed_model(osmosis, workspace, platform, context, monkeypatch):
    found = (
        LORA
        | DEPLOYED
        | {
            "inference_model": "osmosis/tiny-multiply:brave-otter-10",
            "platform_url": "http://h:1/acme/models/l1",
        }
    )
    platform.on("GET", "/models/brave-otter-10", found)
    data = osmosis("model", "info", "brave-otter-10", "--json").json["data"]
    assert set(data) == {"lora_model", "platform_url", *context}
    assert set(data["lora_model"]) == set(LORA | DEPLOYED) | INFO_KEYS
    text = osmosis("model", "info", "brave-otter-10", "--plain").out
    assert f"curl {platform.url}/v1/chat/completions" in text
    assert '"model": "osmosis/tiny-multiply:brave-otter-10"' in text
    assert "$OSMOSIS_API_KEY" in text
    assert "API keys: http://h:1/acme/api-keys" in text
    assert "Undeploy with: osmosis model undeploy brave-otter-10" in text
    monkeypatch.setenv("OSMOSIS_INFERENCE_URL", "https://inference.example/")
    assert (
        "curl https://inference.example/v1/chat/completions"
        in osmosis("model", "info", "brave-otter-10", "--plain").out
    )


def test_model_info_of_a_model_that_is_not_deployed(osmosis, workspace, platform):
    platform.on(
        "GET", "/models/x", LORA | {"deployment_status": "inactive", "hf_upload_status": "in_progress"}
    )
    text = osmosis("model", "info", "x", "--plain").out
    assert "Deploy with: osmosis model deploy x" in text
    assert "Status: Not deployed" in text
    assert "Upload Status: In Progress" in text
    assert "curl" not in text


def test_model_info_of_a_base_model(osmosis, workspace, platform, context):
    price = {"inference_input_usd_per_million_tokens": 0.5}
    more = {"namespace": "osmosis", "hf_url": None, "parameters": 850_000, "context_window": 2048}
    platform.on("GET", "/models/base/osmosis%2Ftiny", BASE | more | price)
    data = osmosis("model", "info", "osmosis/tiny", "--json").json["data"]
    assert set(data) == {"base_model", "platform_url", *context}
    assert data["base_model"] == {key: BASE[key] for key in set(BASE) - {"x"}} | more | price
    assert platform.calls() == ["GET /models/osmosis%2Ftiny", "GET /models/base/osmosis%2Ftiny"]
    text = osmosis("model", "info", "osmosis/tiny", "--plain").out
    assert "Parameters: 850,000" in text
    assert "Input Price: $0.5 per million tokens" in text
    error = osmosis("model", "info", "none", "--json").error
    assert (error["code"], error["message"]) == ("NOT_FOUND", "no route GET /models/none")


@pytest.mark.parametrize("action", ["deploy", "undeploy"])
def test_deploy_and_undeploy(osmosis, workspace, platform, context, action):
    platform.on(
        "POST", f"/models/brave/{action}", {"id": "l1", "model_name": "brave", "status": "active", "more": 1}
    )
    document = osmosis("model", action, "brave", "--json").json
    assert document["operation"] == f"model.{action}"
    assert document["resource"] == {"id": "l1", "model_name": "brave", "status": "active", **context}
    assert document["message"] == f"LoRA model {action}ed: brave"
    assert document["next_steps_structured"] == [{"action": "model_info", "name": "brave"}]


def test_secret_list_never_shows_values(osmosis, workspace, platform):
    platform.page("/environment-secrets", "environment_secrets", [SECRET, SECRET | {"scope": "workspace"}])
    ran = osmosis("secret", "list", "--scope", "personal", "--json")
    assert set(ran.json["items"][0]) == SECRET_KEYS
    assert [item["scope"] for item in ran.json["items"]] == ["personal", "workspace"]
    assert "s3cret" not in ran.out
    assert platform.requests[0].query["scope"] == "user"
    assert (
        osmosis("secret", "list", "--plain").out.splitlines()[0]
        == "API_KEY\tPersonal\t2026-11-01 12:00 AM UTC\tB"
    )


@pytest.mark.parametrize("scope", ["user", "x"])
def test_unknown_scopes(osmosis, scope):
    assert "Scope must be" in osmosis("secret", "list", "--scope", scope, "--json").error["message"]
    assert "Scope must be" in osmosis("secret", "delete", "A", "--scope", scope, "--json").error["message"]


@pytest.mark.parametrize("value", ["s3cret-value", " spaced \n", "ünïcode"])
def test_secret_set_sends_the_value_byte_for_byte_and_shows_it_nowhere(
    osmosis, workspace, platform, monkeypatch, value
):
    monkeypatch.setenv("VALUE", value)
    platform.on(
        "POST", "/environment-secrets", SECRET | {"value": value, "platform_url": "http://h/acme/secrets"}
    )
    ran = osmosis("secret", "set", "API_KEY", "--env", "VALUE", "--json")
    assert platform.requests[0].json == {"name": "API_KEY", "value": value, "scope": "user"}
    document = ran.json
    assert document["message"] == 'Secret "API_KEY" saved in personal scope.'
    assert document["platform_url"] == "http://h/acme/secrets"
    assert document["next_steps_structured"] == [{"action": "view_secrets", "url": "http://h/acme/secrets"}]
    assert set(document["resource"]) >= SECRET_KEYS
    assert value.strip() not in ran.out + ran.err


@pytest.mark.parametrize("status", [400, 403, 500])
def test_an_error_that_echoes_the_value_is_redacted(osmosis, workspace, platform, monkeypatch, status):
    monkeypatch.setenv("VALUE", "s3cret-value")
    body = {
        "error": "bad s3cret-value",
        "code": "X-s3cret-value",
        "nested": [{"s3cret-value": "as3cret-valueb", "value": "other"}],
    }
    platform.on("POST", "/environment-secrets", body, status=status)
    ran = osmosis("secret", "set", "API_KEY", "--env", "VALUE", "--json")
    assert ran.code == 1
    assert "s3cret-value" not in ran.out + ran.err
    assert "other" not in ran.err
    assert ran.error["message"] == "bad [REDACTED]"


def test_secret_set_without_a_source_of_the_value(osmosis, bare_workspace, monkeypatch):
    ran = osmosis("secret", "set", "API_KEY", "--json")
    assert (ran.error["code"], ran.error["details"]) == ("INTERACTIVE_REQUIRED", {"flags": ["--env"]})
    monkeypatch.setenv("EMPTY", "")
    for name in ("EMPTY", "UNSET_NAME"):
        error = osmosis("secret", "set", "API_KEY", "--env", name, "--json").error
        assert error["code"] == "VALIDATION"
        assert name in error["message"]


@pytest.mark.parametrize("name", ["a", "1A", "A-B", "A\n", "A" * 256, ""])
@pytest.mark.parametrize("command", [["set", "--env", "X"], ["delete", "--yes"]])
def test_bad_secret_names(osmosis, bare_workspace, command, name):
    assert osmosis("secret", command[0], name, *command[1:], "--json").error["code"] == "VALIDATION"


def test_secret_delete(osmosis, workspace, platform):
    platform.page("/environment-secrets", "environment_secrets", [SECRET])
    ran = osmosis("secret", "delete", "API_KEY", "--json")
    assert ran.error["details"]["summary"] == {"Name": "API_KEY", "Scope": "personal"}
    platform.on("DELETE", "/environment-secrets", status=204)
    document = osmosis("secret", "delete", "API_KEY", "--yes", "--json").json
    assert document["resource"] == {"name": "API_KEY", "scope": "personal"}
    assert json.loads(platform.requests[-1].body) == {"name": "API_KEY", "scope": "user"}


def test_deleting_what_is_not_there_names_the_other_scope(osmosis, workspace, platform):
    platform.page("/environment-secrets", "environment_secrets", [SECRET])
    error = osmosis("secret", "delete", "API_KEY", "--scope", "workspace", "--json").error
    assert error["code"] == "NOT_FOUND"
    assert (
        error["message"] == 'Secret "API_KEY" not found. It exists in personal scope: pass --scope personal.'
    )
    assert osmosis("secret", "delete", "OTHER", "--json").error["message"] == 'Secret "OTHER" not found.'


def test_a_failed_lookup_does_not_stop_a_delete(osmosis, workspace, platform):
    platform.on("GET", "/environment-secrets", {"error": "x"}, status=500)
    platform.on("DELETE", "/environment-secrets", {})
    assert osmosis("secret", "delete", "API_KEY", "--yes", "--json").code == 0
