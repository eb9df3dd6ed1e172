"""The API answers every request that its description allows, and many that it does not, as the description says."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from osmosis_platform.app import create_app
from osmosis_platform.context import Platform

# Not among them: that what the description allows is accepted. No schema says which names exist, or that two headers exclude
# each other.
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# Signs the caller out, after which nothing more would be tried.
LEFT_OUT = {"DELETE /api/cli/tokens/{token_id}"}


@pytest.fixture
def app(platform: Platform) -> FastAPI:
    return create_app(platform)


def try_everything(app: FastAPI, headers: dict[str, str], names: dict[str, list[str]], examples: int) -> int:
    """Send `examples` requests to each operation, valid and invalid ones; returns how many operations there were.

    Half of the requests name something that exists: `names` by the collection in the path.
    """
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.label in LEFT_OUT:
            continue
        tried += 1
        collection = operation.path.removeprefix("/api/cli/").split("/")[0]
        modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=st.one_of(modes), known=st.sampled_from([None, *names.get(collection, [])]))
        def send(case: Case, known: str | None) -> None:
            if known is not None and case.path_parameters:
                case.path_parameters = dict.fromkeys(case.path_parameters, known)
            answer = case.call(headers=headers)
            case.validate_response(answer, checks=CHECKS)

        send()
    return tried


@pytest.fixture
def names(app: FastAPI, workshop: Any) -> dict[str, list[str]]:
    """Something of every kind, made through the API."""
    headers = workshop.town.ada.scoped()
    made: dict[str, list[str]] = {}
    with TestClient(app) as client:
        for room in ("eval-runs", "training-runs"):
            run = client.post(f"/api/cli/{room}", json=workshop.body("tiny/model"), headers=headers).json()
            made[room] = [run["name"], run["id"]]
        file = {"file_name": "rows", "file_size": 100, "extension": "jsonl"}
        dataset = client.post("/api/cli/datasets", json=file, headers=headers).json()
        made["datasets"] = ["rows", dataset["id"]]
    made["models"] = ["tiny/model", workshop.base_model_id]
    return made


def test_a_few_requests_to_every_operation(app: FastAPI, workshop: Any, names: dict[str, list[str]]) -> None:
    assert try_everything(app, workshop.town.ada.scoped(), names, examples=4) >= 55


@pytest.mark.slow
def test_many_requests_to_every_operation(app: FastAPI, workshop: Any, names: dict[str, list[str]]) -> None:
    assert try_everything(app, workshop.town.ada.scoped(), names, examples=40) >= 55


def test_every_route_of_the_api_is_described(app: FastAPI) -> None:
    described = app.openapi()["paths"]
    for route in iter_route_contexts(app.routes):
        path = route.path_format or ""
        if path.startswith(("/api/cli/", "/v1/")):
            for method in route.methods or ():
                operation = described[path][method.lower()]
                assert "422" not in operation["responses"], "bad input is 400"
                assert {"400", "401", "403", "404"} <= operation["responses"].keys()


def test_the_description_says_how_to_sign_in_and_name_the_workspace(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    listing = paths["/api/cli/eval-runs"]["get"]
    assert listing["security"] == [{"token": []}]
    assert {"X-Osmosis-Git", "X-Osmosis-Workspace", "limit", "offset"} == {
        p["name"] for p in listing["parameters"]
    }
    assert "security" not in paths["/api/cli/device/authorize"]["post"]
    assert paths["/v1/models"]["get"]["security"] == [{"API key": []}]
    submit = paths["/api/cli/training-runs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert submit["properties"]["training_config"]["properties"]["n_samples_per_prompt"]["minimum"] == 2
