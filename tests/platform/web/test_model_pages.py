"""Models are chosen by the address, each has a page, and the playground asks with the person's own session."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.context import Platform
from osmosis_platform.runs.models import Run

PAGE = "/acme/models"


@pytest.fixture
def models(platform: Platform, workshop: Any) -> dict[str, str]:
    """Three LoRA models of one run: the name of each and its id."""
    town = workshop.town
    with platform.database.write() as session:
        run = Run(
            workspace_id=town.acme.id, kind="train", name="calm-heron", creator_id=town.ada.user.id, rollout_name="echo",
            entrypoint="main.py", commit_sha="0" * 40, model_path="tiny/model", dataset_id=workshop.dataset_id, config={},
        )  # fmt: skip
        session.add(run)
        session.flush()
        found = {}
        for step, reward, status in ((2, 0.5, "active"), (4, 0.9, None), (6, None, "inactive")):
            model = LoraModel(
                workspace_id=town.acme.id, name=f"heron-{step}", base_model_id=workshop.base_model_id, run_id=run.id, step=step,
                reward=reward, deployment_status=status, blob_sha256="0" * 64,
            )  # fmt: skip
            session.add(model)
            session.flush()
            found[model.name] = model.id
    return found


def test_lists_are_chosen_by_the_address(browser: Callable[[str], Any], models: dict[str, str]) -> None:
    max = browser("max")

    def names(query: str) -> list[str]:
        return [m["model_name"] for m in max.json(f"{PAGE}?{query}")["lora_models"]]

    assert names("") == ["heron-6", "heron-4", "heron-2"]
    assert names("sort=reward") == ["heron-4", "heron-2", "heron-6"]
    assert names("deployment=active") == ["heron-2"]
    assert names("deployment=never") == ["heron-4"]
    assert names("q=N-6") == ["heron-6"]
    assert names("run=calm-heron&base=tiny/model&sort=oldest") == ["heron-2", "heron-4", "heron-6"]
    assert names("base=other") == []
    assert "No model matches" in max.get(f"{PAGE}?q=zzz").text


def test_a_model_has_a_page_with_requests_for_programs(
    browser: Callable[[str], Any], models: dict[str, str]
) -> None:
    max = browser("max")
    page = max.get(f"{PAGE}/{models['heron-2']}").text
    for text in (
        "tiny/model:heron-2",
        "/v1/chat/completions",
        "from openai import OpenAI",
        "Try it",
        "Evaluate it",
    ):
        assert text in page
    assert "It answers once it is deployed" in max.get(f"{PAGE}/heron-4").text
    answer = max.post(f"{PAGE}/{models['heron-2']}/undeploy", back=f"{PAGE}/{models['heron-2']}")
    assert answer.headers["location"] == f"{PAGE}/{models['heron-2']}"
    assert browser("eve").get(f"/other/models/{models['heron-2']}").status_code == 404


def test_a_checkpoint_is_deployed_and_exported_from_its_runs_page(
    browser: Callable[[str], Any], models: dict[str, str], platform: Platform
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("adapter_config.json")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    with platform.database.write() as session:
        model = session.get_one(LoraModel, models["heron-4"])
        model.blob_sha256 = platform.blobs.put_bytes(packed.getvalue()).sha256
    max, run = browser("max"), "/acme/training/calm-heron"
    made = f"{PAGE}/{models['heron-4']}"
    assert {f"{made}/deploy", f"{PAGE}/{models['heron-2']}/undeploy"} <= max.forms(run)
    answer = max.post(f"{made}/deploy", back=f"{run}#checkpoints-title")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{run}#checkpoints-title")
    assert f"{made}/undeploy" in max.forms(run)
    assert f"{made}/undeploy" in max.json(f"{run}?part=live")["parts"]["checkpoints"]

    assert f'href="{made}/adapter.tar"' in max.get(run).text
    exported = max.get(f"{made}/adapter.tar")
    assert exported.content == packed.getvalue()
    assert "heron-4.tar" in exported.headers["content-disposition"]
    gone = max.get(f"{PAGE}/heron-2/adapter.tar")
    assert gone.status_code == 404
    assert "no longer stored" in gone.text
    eve = browser("eve")
    assert eve.get(f"{made}/adapter.tar").status_code == 404
    assert eve.post(f"{made}/undeploy").status_code == 404


def test_where_nothing_is_served_a_run_offers_only_exports(
    browser: Callable[[str], Any], models: dict[str, str], platform: Platform
) -> None:
    platform.settings = platform.settings.model_copy(update={"serve_models": False})
    run = browser("max").get("/acme/training/calm-heron").text
    assert f"{models['heron-4']}/adapter.tar" in run
    assert "/deploy" not in run


def test_the_playground_needs_the_forms_token_and_a_callable_model(
    browser: Callable[[str], Any], models: dict[str, str]
) -> None:
    max = browser("max")
    assert max.json("/acme/playground")["models"] == ["tiny/model", "tiny/model:heron-2"]

    def ask(**body: Any) -> Any:
        sent = {"model": "tiny/model", "messages": [{"role": "user", "content": "hi"}], **body}
        return max.client.post("/acme/playground/chat", json=sent, headers={"X-CSRF-Token": max.csrf})

    bare = max.client.post("/acme/playground/chat", json={"model": "tiny/model", "messages": [{}]})
    assert (bare.status_code, bare.json()["code"]) == (403, "CSRF")
    assert (ask(model="no/such").status_code, ask().status_code) == (404, 503)
    assert ask(temperature=9).status_code == 400
    raw = '{"model": "tiny/model", "messages": [{"role": "user", "content": NaN}]}'
    headers = {"X-CSRF-Token": max.csrf, "Content-Type": "application/json"}
    odd = max.client.post("/acme/playground/chat", content=raw, headers=headers)
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "messages[0].content")
    assert ask(tools=[]).status_code == 400
