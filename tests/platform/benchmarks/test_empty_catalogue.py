"""A workspace without benchmarks is told the truth, in the shapes that clients read."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

PROVIDER = {"type": "provider", "model": "openai/gpt-5-mini", "api_key_secret": "OPENAI_API_KEY"}


def body(**change: Any) -> dict[str, Any]:
    return {
        "experiment_config": {"benchmark": "terminal-bench"},
        "agents": [{"model": PROVIDER, "env": {}}],
        **change,
    }


@pytest.mark.parametrize(
    ("path", "key"), [("benchmarks", "benchmarks"), ("benchmark-runs?benchmark=b-1", "benchmark_runs")]
)
def test_lists_are_empty_pages(client: httpx.Client, town: Any, path: str, key: str) -> None:
    answer = client.get(f"/api/cli/{path}", headers=town.max.scoped())
    assert answer.json() == {key: [], "total_count": 0, "has_more": False, "next_offset": None}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "benchmarks/org%2Fsuite"),
        ("GET", "benchmark-runs/x"),
        ("GET", "benchmark-runs/x/logs?limit=50&direction=older"),
        ("GET", "benchmark-runs/x/outputs/manifest?types=summary,results"),
        ("POST", "benchmark-runs/x/stop"),
    ],
)
def test_nothing_is_found(client: httpx.Client, town: Any, method: str, path: str) -> None:
    answer = client.request(method, f"/api/cli/{path}", headers=town.max.scoped())
    assert answer.status_code == 404
    assert "no benchmarks" in answer.json()["error"]


def test_downloads_of_no_run(client: httpx.Client, town: Any) -> None:
    items = {"items": [{"path": "summary.csv"}]}
    answer = client.post(
        "/api/cli/benchmark-runs/x/outputs/download-urls", json=items, headers=town.max.scoped()
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "BENCHMARK_RUN_NOT_FOUND")


def test_a_complete_submit_names_the_benchmark_that_is_not_there(client: httpx.Client, town: Any) -> None:
    models = [
        PROVIDER,
        {"type": "endpoint", "base_url": "http://h/v1", "model": "m", "api_key_secret": "K", "extra_headers": {"A": "b"}},
        {"type": "hosted", "base_model": "osmosis/tiny-multiply", "lora_model_name": "calm-heron-step-4"},
    ]  # fmt: skip
    full = body(
        agents=[{"harness": "terminus-2", "model": model, "env": {"A": "b"}} for model in models],
        tasks_config={"task_set": "parity", "categories": ["a"], "task_names": ["b"]},
        execution_config={"attempts_per_task": 1, "max_concurrent_attempts": 4, "verifier_secrets": ["HF_TOKEN"]},
        env_config={"LOG_LEVEL": "INFO"},
        secrets={"required": ["A_KEY"], "provided": {}},
    )  # fmt: skip
    answer = client.post("/api/cli/benchmark-runs", json=full, headers=town.max.scoped())
    assert (answer.status_code, answer.json()["code"]) == (404, "BENCHMARK_NOT_FOUND")
    assert "Benchmark not found: terminal-bench" in answer.json()["error"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"experiment_config": {}}, "experiment_config.benchmark"),
        ({"agents": []}, "agents"),
        ({"agents": [{"model": PROVIDER}] * 9}, "agents"),
        ({"agents": [{"model": {"type": "magic"}}]}, "agents.0.model"),
        ({"tasks_config": {"task_set": "full"}}, "tasks_config.task_set"),
        ({"execution_config": {"attempts_per_task": 0}}, "execution_config.attempts_per_task"),
        ({"execution_config": {"verifier_secrets": ["K"] * 17}}, "execution_config.verifier_secrets"),
        ({"secrets": {"required": ["lower"]}}, "secrets.required.0"),
    ],
)
def test_a_wrong_submit_is_told_where(
    client: httpx.Client, town: Any, change: dict[str, Any], field: str
) -> None:
    answer = client.post("/api/cli/benchmark-runs", json=body(**change), headers=town.max.scoped())
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text


def test_given_values_are_not_echoed(client: httpx.Client, town: Any) -> None:
    wrong = body(
        secrets={
            "required": ["A_KEY"],
            "provided": {"bad name": "hush-hush-value", "A_KEY": ["hush-hush-value"]},
        }
    )
    answer = client.post("/api/cli/benchmark-runs", json=wrong, headers=town.max.scoped())
    assert answer.status_code == 400
    assert "hush-hush-value" not in answer.text
