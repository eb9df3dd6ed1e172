"""Listing the benchmarks of a workspace and showing one."""

from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.benchmarks.runs import PATH as RUNS_PATH
from osmosis_ai.cli.benchmarks.runs import RUN_COLUMNS, run_item
from osmosis_ai.cli.benchmarks.scores import SEPARATOR, leaderboard_lines
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import Block, Column, DetailResult, ListResult
from osmosis_ai.cli.paging import Page, check_limit, fetch
from osmosis_ai.cli.workspace import open_workspace

PATH = "/benchmarks"
_SYNC_WORDS = {"pending": "Queued", "syncing": "Syncing", "failed": "Failed"}


def list_benchmarks(limit: int, everything: bool) -> ListResult:
    """The benchmarks that were added to the workspace."""
    return _BENCHMARKS.list(limit, everything)


def benchmark_info(key: str, limit: int, everything: bool) -> DetailResult:
    """One benchmark with its leaderboard and the workspace's runs on it; ``limit`` is for the runs."""
    check_limit(limit, everything)
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status("Fetching benchmark..."):
        answer = client.get(f"{PATH}/{segment(key)}")
        found: dict[str, Any] = answer["benchmark"]
        page = fetch(
            client,
            RUNS_PATH,
            "benchmark_runs",
            limit=limit,
            everything=everything,
            params={"benchmark": found["id"]},
        )
    shown = serializers.benchmark_detail(found)
    leaderboard = answer.get("leaderboard") or []
    runs = [run_item(run) for run in page.items]
    return DetailResult(
        {
            "benchmark": shown,
            "leaderboard": leaderboard,
            "runs": runs,
            "runs_total_count": page.total_count,
            **workspace.context,
        },
        _rows(shown, page.total_count),
        title="Benchmark",
        blocks=[Block("Leaderboard", leaderboard_lines(leaderboard))],
        tables=[_runs_table(runs, page)],
        hints=_hints(shown, key),
    )


def _runs_table(runs: list[dict[str, Any]], page: Page) -> ListResult:
    return ListResult(
        runs,
        RUN_COLUMNS,
        page.total_count,
        page.has_more,
        title=f"Runs ({len(runs)} of {page.total_count})",
        when_empty="No benchmark runs yet.",
    )


def _runnable(item: dict[str, Any]) -> bool:
    return item["sync_status"] in {None, "ready"}


def _sync_detail(item: dict[str, Any]) -> str:
    if item["sync_status"] == "failed":
        return str(item["sync_error"] or "the platform gave no reason")
    if item["sync_status"] == "pending":
        return "Waiting to start"
    done, total = item["synced_task_count"], item["task_count"]
    if not formats.is_number(done):
        return "Starting"
    return f"{done:,} / {total:,} tasks" if formats.is_number(total) and total > 0 else f"{done:,} tasks"


def _last_run(item: dict[str, Any]) -> str:
    if not _runnable(item):
        word = _SYNC_WORDS.get(item["sync_status"], formats.title(item["sync_status"]))
        return f"{word}{SEPARATOR}{_sync_detail(item)}"
    if not item["last_run_at"]:
        return "No benchmark runs yet"
    parts = [formats.title(item["last_run_status"]), formats.age(item["last_run_at"])]
    return SEPARATOR.join([*parts, *([str(item["last_run_name"])] if item["last_run_name"] else [])])


def _tasks(item: dict[str, Any]) -> str:
    if _runnable(item):
        return formats.count(item["task_count"])
    return "unavailable" if item["sync_status"] == "failed" else formats.MISSING


def _why_not(item: dict[str, Any]) -> str:
    name = item["key"] or item["name"]
    if item["sync_status"] == "failed":
        return f"{name} cannot run: reading its task list failed: {_sync_detail(item)}"
    return f"{name} cannot run yet: its task list is being read ({_sync_detail(item)})."


def _rows(item: dict[str, Any], runs: int) -> list[tuple[str, str]]:
    return [
        ("Name", formats.text(item["name"])),
        ("Key", formats.text(item["key"])),
        ("Description", formats.text(item["description"])),
        ("Source", formats.text(item["source_url"] or item["source_type"])),
        ("Runner", formats.text(item["runner_family"])),
        ("Tasks", _tasks(item)),
        ("Categories", formats.count(item["category_count"])),
        ("Named Task Sets", ", ".join(map(_task_set, item["task_sets"])) or formats.MISSING),
        ("Harness", _harness(item)),
        ("LLM Judge", _judge(item)),
        ("Required Secrets", ", ".join(item["required_secret_names"]) or formats.MISSING),
        ("Pass Threshold", formats.text(item["pass_threshold"])),
        ("Runs", formats.count(runs)),
    ]


def _task_set(task_set: dict[str, Any]) -> str:
    recommended = ", recommended" if task_set["recommended"] else ""
    return f"{task_set['name']} ({formats.count(task_set['task_count'])}{recommended})"


def _harness(item: dict[str, Any]) -> str:
    if not item["supports_harness"]:
        return "Official scaffold only"
    words = "Required" if item["requires_harness"] else "Optional"
    return f"{words} (default {item['default_harness']})" if item["default_harness"] else words


def _judge(item: dict[str, Any]) -> str:
    if not item["requires_judge_model"]:
        return "None"
    default = item["judge_model_default"]
    return f"Required (default {default})" if default else "Required"


def _hints(item: dict[str, Any], key: str) -> list[str]:
    hints = [f"View: {item['platform_url']}"] if item["platform_url"] else []
    if not _runnable(item):
        return [*hints, _why_not(item)]
    hints += [f"Needs the secret: osmosis secret set {name}" for name in item["required_secret_names"]]
    return [
        *hints,
        f'Run it with benchmark = "{item["key"] or key}" in a config: '
        "osmosis benchmark submit configs/benchmark/<name>.toml",
    ]


_BENCHMARKS = Listing(
    PATH,
    "benchmarks",
    "Benchmarks",
    serializers.benchmark,
    [
        Column("Name", lambda item: formats.text(item["name"])),
        Column("Key", lambda item: formats.text(item["key"])),
        Column("Last Run", _last_run),
        Column("Tasks", _tasks),
        Column("Added By", lambda item: formats.text(item["creator_name"])),
    ],
    when_empty="This workspace has no benchmarks. They are added on the platform, not from the command line.",
    next_text=["Details: osmosis benchmark info <key>"],
    hints=lambda items: [_why_not(item) for item in items if not _runnable(item)],
)
