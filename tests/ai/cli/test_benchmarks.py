"""`osmosis benchmark`: what the platform has, how a run is submitted, followed and downloaded."""

from datetime import UTC, datetime, timedelta

import pytest

BENCHMARK = {
    "id": "b-1",
    "name": "Terminal Bench",
    "source_type": "osmosis_managed",
    "source_ref": "tb",
    "task_count": 1234,
    "category_count": 2,
    "sync_status": "ready",
}
RUN = {
    "id": "r-1",
    "name": "brave-otter",
    "status": "running",
    "benchmark_id": "b-1",
    "benchmark_name": "Terminal Bench",
    "agent_count": 2,
    "best_pass_at_1": 0.615,
    "ingested_results": 7,
    "expected_results": 40,
    "created_at": "2026-07-01T10:00:00+00:00",
    "creator_name": "Ada",
}
RUN_KEYS = {
    "id",
    "name",
    "status",
    "benchmark_id",
    "benchmark_name",
    "agent_count",
    "best_pass_at_1",
    "ingested_results",
    "expected_results",
    "creator_name",
    "creator_email",
    "created_at",
    "started_at",
    "completed_at",
}
LIST_KEYS = {
    "id",
    "name",
    "key",
    "description",
    "source_type",
    "source_ref",
    "source_url",
    "task_count",
    "category_count",
    "task_sets",
    "sync_status",
    "synced_task_count",
    "sync_error",
    "platform_url",
    "run_count",
    "running_count",
    "last_run_at",
    "last_run_status",
    "last_run_name",
    "creator_name",
}


def test_a_workspace_without_benchmarks(osmosis, workspace, platform, context):
    platform.page("/benchmarks", "benchmarks", [])
    assert osmosis("benchmark", "list", "--json").json == {
        "schema_version": 1,
        "items": [],
        "total_count": 0,
        "has_more": False,
        "next_offset": None,
        **context,
    }
    shown = osmosis("benchmark", "list").out
    assert "Last Run" in shown
    assert "This workspace has no benchmarks." in shown


def test_the_list(osmosis, workspace, platform):
    two_days_ago = (datetime.now(UTC) - timedelta(days=2, hours=1)).isoformat()
    ran = {"last_run_at": two_days_ago, "last_run_status": "finished", "last_run_name": "brave-otter"}
    platform.page(
        "/benchmarks",
        "benchmarks",
        [
            {**BENCHMARK, **ran, "creator_name": "Ada", "task_sets": [{"name": "parity", "task_count": 3}]},
            {**BENCHMARK, "name": "never"},
            {**BENCHMARK, "name": "new", "sync_status": "pending"},
            {**BENCHMARK, "name": "started", "sync_status": "syncing"},
            {
                **BENCHMARK,
                "name": "half",
                "sync_status": "syncing",
                "synced_task_count": 412,
                "task_count": 500,
            },
            {
                **BENCHMARK,
                "name": "broken",
                "source_ref": "br",
                "sync_status": "failed",
                "sync_error": "no such dataset",
            },
        ],
    )
    assert osmosis("benchmark", "list", "--plain").out.splitlines() == [
        "Terminal Bench\ttb\tFinished · 2d ago · brave-otter\t1,234\tAda",
        "never\ttb\tNo benchmark runs yet\t1,234\t–",
        "new\ttb\tQueued · Waiting to start\t–\t–",
        "started\ttb\tSyncing · Starting\t–\t–",
        "half\ttb\tSyncing · 412 / 500 tasks\t–\t–",
        "broken\tbr\tFailed · no such dataset\tunavailable\t–",
    ]
    assert "br cannot run: reading its task list failed: no such dataset" in osmosis("benchmark", "list").out
    items = osmosis("benchmark", "list", "--json").json["items"]
    assert {frozenset(item) for item in items} == {frozenset(LIST_KEYS)}
    assert items[0]["key"] == "tb"
    assert items[0]["task_sets"] == [
        {"name": "parity", "task_count": 3, "recommended": False, "description": None}
    ]


def test_info_shows_needs_leaderboard_and_runs(osmosis, workspace, platform, context):
    board = [
        {
            "rank": 1,
            "tied": True,
            "model": "m",
            "harness": "codex",
            "task_set": "parity",
            "pass_at_1": {"value": 0.612, "ci_low": 0.58, "ci_high": 0.643, "n": 100},
            "pass_at_k": [{"k": 1, "value": 0.6}, {"k": 5, "value": 0.8}],
            "cost_per_task": 0.42,
            "mean_duration_seconds": 95.2,
            "tokens_per_task": 12300,
        },
        {"rank": 2, "model": "n", "pass_at_1": {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 99}},
    ]
    needs = {
        "runner_family": "harbor",
        "supports_harness": True,
        "requires_harness": False,
        "default_harness": "terminus-2",
        "requires_judge_model": True,
        "judge_model_default": "openai/j",
        "required_secret_names": ["HF_TOKEN"],
        "pass_threshold": 1.0,
        "categories": [{"name": "c", "task_count": 2}],
        "tasks": [{"name": "t", "category": "c", "difficulty": grade} for grade in ("easy", "extreme", None)],
        "task_sets": [{"name": "parity", "task_count": 300, "recommended": True}],
        "source_url": "https://h/x",
    }
    platform.on("GET", "/benchmarks/a%2Fb", {"benchmark": {**BENCHMARK, **needs}, "leaderboard": board})
    platform.page("/benchmark-runs", "benchmark_runs", [RUN])
    data = osmosis("benchmark", "info", "a/b", "--limit", "3", "--json").json["data"]
    assert platform.requests[-1].query == {"benchmark": "b-1", "limit": "3", "offset": "0"}
    counters = {"run_count", "running_count", "last_run_at", "last_run_status", "last_run_name"}
    assert set(data["benchmark"]) == (LIST_KEYS - counters) | (
        set(needs) - {"task_sets", "source_url"} | {"unavailable_tasks"}
    )
    assert data["leaderboard"] == board
    assert [task["difficulty"] for task in data["benchmark"]["tasks"]] == ["easy", None, None]
    assert set(data["runs"][0]) == RUN_KEYS | {"progress"}
    assert data["runs"][0]["progress"] == {"completed": 7, "total": 40, "unit": "results"}
    assert data["runs_total_count"] == 1
    assert {key: data[key] for key in context} == context

    lines = osmosis("benchmark", "info", "a/b", "--plain").out.splitlines()
    assert "Harness: Optional (default terminus-2)" in lines
    assert "LLM Judge: Required (default openai/j)" in lines
    assert "Named Task Sets: parity (300, recommended)" in lines
    assert "Required Secrets: HF_TOKEN" in lines
    assert (
        "#1* · m (codex) [parity] · pass@1 61.2% (58.0–64.3) · pass@5 80.0% · $0.42/task · 95s/task · 12.3k tokens/task"
        in lines
    )
    assert "#2 · n · pass@1 50.0% (40–60) · pass@k – · $–/task · –s/task · – tokens/task" in lines
    assert any("tied for first" in line for line in lines)
    assert lines[lines.index("Runs (1 of 1):") + 1].startswith("brave-otter\t[running]\t7 / 40 results\t")


def test_metrics_that_nobody_has_are_left_out(osmosis, workspace, platform):
    board = [{"rank": 1, "model": "m", "cost_per_task": 1.5}, {"rank": 2, "model": "n"}]
    platform.on("GET", "/benchmarks/tb", {"benchmark": BENCHMARK, "leaderboard": board})
    platform.page("/benchmark-runs", "benchmark_runs", [])
    lines = osmosis("benchmark", "info", "tb", "--plain").out.splitlines()
    assert "#1 · m · $1.50/task" in lines
    assert "#2 · n · $–/task" in lines
    assert not any("tied" in line for line in lines)


def test_an_empty_leaderboard_says_so(osmosis, workspace, platform):
    platform.on("GET", "/benchmarks/tb", {"benchmark": {**BENCHMARK, "supports_harness": False}})
    platform.page("/benchmark-runs", "benchmark_runs", [])
    shown = osmosis("benchmark", "info", "tb", "--plain").out
    assert "Leaderboard:\nNo scores yet" in shown
    assert "Harness: Official scaffold only" in shown


def test_runs_are_listed(osmosis, workspace, platform):
    old_names = {
        "id": "r-2",
        "benchmark_run_name": "calm-fox",
        "benchmark": {"id": "b-9", "name": "Other"},
        "status": "queued",
    }
    platform.page("/benchmark-runs", "benchmark_runs", [RUN, old_names])
    first, second = osmosis("benchmark", "runs", "list", "--json").json["items"]
    assert set(first) == set(second) == RUN_KEYS | {"progress"}
    assert (second["name"], second["benchmark_id"], second["benchmark_name"]) == ("calm-fox", "b-9", "Other")
    assert osmosis("benchmark", "runs", "list", "--plain").out.splitlines() == [
        "brave-otter\t[running]\t7 / 40 results\tTerminal Bench\t2\t61.5%\t2026-07-01 10:00 AM UTC\tAda",
        "calm-fox\t[queued]\t0 / 0 results\tOther\t–\t–\t–\t–",
    ]


def test_one_run(osmosis, workspace, platform, context):
    answer = {
        "benchmark_run": {**RUN, "best_pass_at_1": None, "platform_url": "http://h/r"},
        "configuration": {
            "source_type": "osmosis_managed",
            "source_ref": "tb",
            "resolved_version": "1.2",
            "resolved_digest": "abc",
            "task_filters": {"task_set": "parity"},
            "config": {"attempts_per_task": 3},
            "resolved_secret_scopes": {"K": "user_override"},
        },
        "agents": [
            {
                "id": "a-1",
                "agent_index": 0,
                "harness": "codex",
                "model_display_name": "m",
                "status": "finished",
                "environment_variables": {"A": "1"},
                "aggregates": {
                    "reported_cost_usd": 5.0,
                    "mean_duration_seconds": 12,
                    "tokens_per_task": 900,
                },
            },
            {"id": "a-2", "agent_index": 1, "model": "n", "status": "running"},
        ],
        "progress": {"ingested": 12, "expected": 44},
        "totals": {
            "passed": 1000,
            "failed": 2,
            "total_input_tokens": 5000,
            "total_output_tokens": 6,
            "total_cost_usd": 1.23456,
        },
        "agent_metrics": [
            {
                "benchmark_run_agent_id": "a-1",
                "rank": 1,
                "n_tasks": 10,
                "pass_at_1": {"value": 0.7, "ci_low": 0.6, "ci_high": 0.8, "n": 30},
            }
        ],
    }
    platform.on("GET", "/benchmark-runs/brave-otter", answer)
    data = osmosis("benchmark", "runs", "info", "brave-otter", "--json").json["data"]
    assert set(data) == {
        "benchmark_run",
        "configuration",
        "agents",
        "progress",
        "totals",
        "agent_metrics",
        *context,
    }
    assert set(data["benchmark_run"]) == RUN_KEYS | {"platform_url"}
    assert data["benchmark_run"]["best_pass_at_1"] == 0.7
    assert data["progress"] == {"completed": 12, "total": 44, "unit": "results"}
    lines = osmosis("benchmark", "runs", "info", "brave-otter", "--plain").out.splitlines()
    for line in (
        "Status: Running",
        "Progress: 12 / 44 results",
        "Best Pass@1: 70.0%",
        "Source: osmosis_managed · tb",
        "Tasks: task_set=parity",
        "Settings: attempts_per_task=3",
        "Secrets: K (personal, overrides workspace)",
        "Agent 1: codex · m · Finished · #1 · pass@1 70.0% (60–80) · $0.50/task · 12s/task · 900 tokens/task · env A=1",
        "Agent 2: official scaffold · n · Running · pass@1 – · $–/task · –s/task · – tokens/task",
        "Outcomes: 1,000 passed, 2 failed",
        "Input Tokens: 5,000",
        "LLM Cost: $1.2346",
        "View: http://h/r",
    ):
        assert line in lines


def test_logs_lead_to_the_page_before(osmosis, workspace, platform):
    platform.on("GET", "/benchmark-runs/x/logs", {"logs": [{"message": "hi"}], "next_cursor": "c"})
    assert (
        "osmosis benchmark runs logs x --limit 50 --cursor c" in osmosis("benchmark", "runs", "logs", "x").out
    )
    assert "Benchmark Run Logs: x" in osmosis("benchmark", "runs", "logs", "x").out


def test_a_run_is_stopped_by_its_id(osmosis, workspace, platform, context):
    platform.on("GET", "/benchmark-runs/brave-otter", {"benchmark_run": RUN})
    platform.on("POST", "/benchmark-runs/r-1/stop", {})
    assert osmosis("benchmark", "runs", "stop", "brave-otter", "--yes", "--json").json == {
        "schema_version": 1,
        "status": "success",
        "operation": "benchmark.stop",
        "resource": {"id": "r-1", "name": "brave-otter", "status": "stopped", **context},
        "message": 'Benchmark run "brave-otter" stopped.',
    }
    assert platform.calls() == ["GET /benchmark-runs/brave-otter", "POST /benchmark-runs/r-1/stop"]


@pytest.mark.parametrize("state", ["pending", "queued"])
def test_nothing_to_download_before_the_start(osmosis, workspace, platform, state):
    platform.on("GET", "/benchmark-runs/x", {"benchmark_run": {**RUN, "status": state}})
    assert osmosis("benchmark", "runs", "download", "x", "--json").error["code"] == "CONFLICT"


def test_outputs_are_downloaded_below_the_workspace(osmosis, workspace, platform, context):
    platform.on("GET", "/benchmark-runs/x", {"benchmark_run": RUN})
    files = [
        {"path": "summary.csv", "size": 3, "token": "t"},
        {"path": "results.csv", "size": 2},
        {"path": "artifacts/only", "size": 1},
    ]
    platform.on("GET", "/benchmark-runs/r-1/outputs/manifest", {"files": files})
    urls = [
        {"path": "summary.csv", "url": f"{platform.url}/s"},
        {"path": "results.csv", "url": f"{platform.url}/r"},
    ]
    platform.on("POST", "/benchmark-runs/r-1/outputs/download-urls", {"items": urls})
    platform.on("GET", "/s", content=b"abc")
    platform.on("GET", "/r", content=b"de")
    ran = osmosis("benchmark", "runs", "download", "x", "--json")
    assert ran.code == 1
    resource = ran.json["resource"]
    folder = workspace / ".osmosis/benchmarks/brave-otter"
    assert (ran.json["operation"], ran.json["status"]) == ("benchmark.download", "partial")
    assert resource["benchmark_run"] == {"id": "r-1", "name": "brave-otter"}
    assert resource["selected_types"] == ["summary", "results"]
    assert [entry["path"] for entry in resource["files_failed"]] == ["artifacts/only"]
    assert resource["output_path"] == str(folder)
    assert "rows" not in resource
    assert (folder / "summary.csv").read_bytes() == b"abc"
    manifest = next(r for r in platform.requests if r.path.endswith("/manifest"))
    assert manifest.query == {"types": "summary,results"}
    asked = next(r for r in platform.requests if r.path.endswith("/download-urls"))
    assert asked.json == {"items": [{"path": "summary.csv", "token": "t"}, {"path": "results.csv"}]}


ACCEPTED = {
    "id": "r-1",
    "name": "brave-otter",
    "status": "pending",
    "created_at": "2026-11-01T00:00:00Z",
    "workflow_id": "w",
    "task_count": 12,
    "platform_url": "http://h/r",
}
CONFIG = """
[experiment]
benchmark = "HLE"
[tasks]
task_names = ["a"]
categories = ["c"]
[[agents]]
harness = "codex"
[agents.model]
type = "provider"
model = "openai/m"
api_key_secret = "KEY"
[agents.env]
A = "2"
B = "3"
[[agents]]
[agents.model]
type = "hosted"
base_model = "Qwen/Q"
lora_model_name = "l"
[env]
A = "1"
"""


@pytest.fixture
def config(workspace, platform):
    folder = workspace / "configs/benchmark"
    folder.mkdir()
    (folder / "b.toml").write_text(CONFIG)
    platform.page("/environment-secrets", "environment_secrets", [{"name": "KEY", "scope": "user"}])
    return "configs/benchmark/b.toml"


def test_the_question_shows_what_will_run(osmosis, platform, config):
    ran = osmosis("benchmark", "submit", config, "--json")
    assert ran.error["code"] == "INTERACTIVE_REQUIRED"
    assert ran.error["details"] == {
        "prompt": "Submit this benchmark run?",
        "summary": {
            "Benchmark": "HLE",
            "Tasks": "1 task(s), 1 category(s)",
            "Agents": "2",
            "Attempts per task": "1",
            "Max concurrent attempts": "4",
            "agent.1 · codex": "openai/m",
            "agent.2 · default": "Qwen/Q:l",
            "env.A": "1",
            "env.agent 1 · A": "2 (overrides global)",
            "env.agent 1 · B": "3",
            "secret.KEY": "Personal",
        },
    }
    assert '"HLE_PARITY_RECOMMENDED"' in ran.err
    assert platform.calls() == ["GET /environment-secrets"]


def test_a_run_is_submitted(osmosis, platform, config, context):
    platform.on("POST", "/benchmark-runs", ACCEPTED)
    document = osmosis("benchmark", "submit", config, "--yes", "--json").json
    agents = [
        {
            "harness": "codex",
            "model": {"type": "provider", "model": "openai/m", "api_key_secret": "KEY"},
            "env": {"A": "2", "B": "3"},
        },
        {"model": {"type": "hosted", "base_model": "Qwen/Q", "lora_model_name": "l"}, "env": {}},
    ]
    tasks = {"task_names": ["a"], "categories": ["c"]}
    assert document == {
        "schema_version": 1,
        "status": "success",
        "operation": "benchmark.submit",
        "resource": {
            "id": "r-1",
            "name": "brave-otter",
            "status": "pending",
            "benchmark_name": "HLE",
            "workflow_id": "w",
            "task_count": 12,
            "created_at": "2026-11-01T00:00:00Z",
            "platform_url": "http://h/r",
            **context,
            "config": {"experiment": {"benchmark": "HLE"}, "tasks": tasks, "agents": agents, "execution": {}},
        },
        "message": "Benchmark run submitted: brave-otter",
        "next_steps_structured": [
            {"action": "benchmark_info", "name": "brave-otter"},
            {"action": "benchmark_list"},
            {"action": "open_url", "url": "http://h/r"},
        ],
    }
    assert platform.requests[-1].json == {
        "experiment_config": {"benchmark": "HLE"},
        "tasks_config": tasks,
        "agents": agents,
        "env_config": {"A": "1"},
    }


def test_a_missing_secret_stops_the_submit(osmosis, platform, config):
    platform.routes.clear()
    platform.page("/environment-secrets", "environment_secrets", [])
    error = osmosis("benchmark", "submit", config, "--yes", "--json").error
    assert error["code"] == "VALIDATION"
    assert "Could not find secret(s): KEY" in error["message"]
    assert "osmosis secret set KEY" in error["message"]


def test_secrets_that_only_the_platform_misses_are_explained(osmosis, platform, config):
    refusal = {"error": "Secret(s) not found: HF_TOKEN", "code": "SECRETS_NOT_FOUND"}
    platform.on("POST", "/benchmark-runs", refusal, status=404)
    error = osmosis("benchmark", "submit", config, "--yes", "--json").error
    assert error["code"] == "NOT_FOUND"
    assert "osmosis secret set HF_TOKEN" in error["message"]


@pytest.mark.parametrize("words", [["info", "x"], ["logs", "x"], ["stop", "x"], ["list"], ["nonsense"]])
def test_errors_name_three_words(osmosis, workspace, platform, words):
    import json

    ran = osmosis("benchmark", "runs", *words, "--bad", "--json")
    assert json.loads(ran.err)["command"] == f"benchmark runs {words[0]}"
    assert ran.code == 2
