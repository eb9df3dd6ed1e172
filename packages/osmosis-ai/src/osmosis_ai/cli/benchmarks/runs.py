"""Listing benchmark runs and showing one."""

from shlex import quote
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.benchmarks.scores import SEPARATOR, metric_cells
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import Block, Column, DetailResult, ListResult
from osmosis_ai.cli.run_details import configuration_values, secret_scopes_text, variables_text
from osmosis_ai.cli.workspace import open_workspace

PATH = "/benchmark-runs"
RUN_COLUMNS = [
    Column("Name", lambda item: formats.text(item["name"])),
    Column("Status", lambda item: formats.token(item["status"])),
    Column("Progress", lambda item: _progress(item["progress"])),
    Column("Benchmark", lambda item: formats.text(item["benchmark_name"])),
    Column("Agents", lambda item: formats.text(item["agent_count"])),
    Column("Best Pass@1", lambda item: formats.percent(item["best_pass_at_1"])),
    Column("Submitted", lambda item: formats.date(item["created_at"])),
    Column("Submitted By", lambda item: formats.text(item["creator_name"])),
]


def list_runs(limit: int, everything: bool) -> ListResult:
    """The benchmark runs of the workspace, newest first."""
    return _RUNS.list(limit, everything)


def run_item(run: dict[str, Any]) -> dict[str, Any]:
    """A run of a list, with its progress."""
    shown = serializers.benchmark_run(run)
    return {**shown, "progress": _progress_of(shown)}


def run_info(name: str) -> DetailResult:
    """One run: configuration, agents with their scores, outcomes and cost."""
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status("Fetching benchmark run..."):
        answer = client.get(f"{PATH}/{segment(name)}")
    metrics = answer.get("agent_metrics") or []
    run = _run(answer, metrics)
    progress = _progress_of(run)
    data = {
        "benchmark_run": run,
        "configuration": answer.get("configuration"),
        "agents": answer.get("agents") or [],
        "progress": progress,
        "totals": answer.get("totals"),
        "agent_metrics": metrics,
        **workspace.context,
    }
    return DetailResult(
        data,
        _rows(run, answer, progress),
        title="Benchmark Run",
        blocks=[
            *_configuration(answer.get("configuration") or {}),
            *_agents(answer.get("agents") or [], metrics),
            *_totals(answer.get("totals") or {}),
        ],
        hints=_hints(name, run),
    )


def _run(answer: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """The run with what the detail knows better than the list: counters, agents and the best score."""
    given, counters = answer["benchmark_run"], answer.get("progress") or {}
    configuration = answer.get("configuration") or {}
    run = serializers.benchmark_run(given)
    for key, better in (
        ("ingested_results", counters.get("ingested")),
        ("expected_results", counters.get("expected")),
    ):
        run[key] = run[key] if better is None else better
    for key in ("benchmark_id", "benchmark_name"):
        run[key] = run[key] or configuration.get(key)
    if run["agent_count"] is None and answer.get("agents"):
        run["agent_count"] = len(answer["agents"])
    if run["best_pass_at_1"] is None:
        values = [score for score in map(_pass_at_1, metrics) if score is not None]
        run["best_pass_at_1"] = max(values, default=None)
    return run


def _pass_at_1(metric: dict[str, Any]) -> float | None:
    score = metric.get("pass_at_1")
    value = score.get("value") if isinstance(score, dict) else score
    return float(value) if formats.is_number(value) else None


def _progress_of(run: dict[str, Any]) -> dict[str, Any]:
    done, total = run["ingested_results"], run["expected_results"]
    return {
        "completed": done if formats.is_number(done) else 0,
        "total": total if formats.is_number(total) else 0,
        "unit": "results",
    }


def _progress(progress: dict[str, Any]) -> str:
    return formats.progress(progress["completed"], progress["total"], progress["unit"])


def _rows(run: dict[str, Any], answer: dict[str, Any], progress: dict[str, Any]) -> list[tuple[str, str]]:
    identity = [("ID", str(run["id"]))] if answer.get("is_internal_user") else []
    return [
        ("Name", formats.text(run["name"])),
        *identity,
        ("Status", formats.title(run["status"])),
        ("Benchmark", formats.text(run["benchmark_name"])),
        ("Progress", _progress(progress)),
        ("Duration", formats.duration(formats.elapsed(run["started_at"], run["completed_at"]))),
        ("Best Pass@1", formats.percent(run["best_pass_at_1"])),
        ("Agents", formats.text(run["agent_count"])),
        ("Submitted", formats.date(run["created_at"], seconds=True)),
        ("Submitted By", formats.text(run["creator_name"] or run["creator_email"])),
        ("Started", formats.date(run["started_at"], seconds=True)),
        ("Completed", formats.date(run["completed_at"], seconds=True)),
    ]


def _configuration(configuration: dict[str, Any]) -> list[Block]:
    lines: list[str] = []
    source = SEPARATOR.join(
        str(configuration[key]) for key in ("source_type", "source_ref") if configuration.get(key)
    )
    for label, value in (
        ("Source", source),
        ("Version", configuration.get("resolved_version")),
        ("Digest", configuration.get("resolved_digest")),
        ("Tasks", configuration_values(configuration.get("task_filters"))),
        ("Settings", configuration_values(configuration.get("config"))),
        ("Secrets", secret_scopes_text(configuration.get("resolved_secret_scopes"))),
    ):
        if value:
            lines.append(f"{label}: {value}")
    return [Block("Configuration", lines)] if lines else []


def _agents(agents: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> list[Block]:
    if not agents:
        return []
    by_agent = {metric.get("benchmark_run_agent_id"): metric for metric in metrics}
    scores = [_agent_scores(agent, by_agent.get(agent.get("id")) or {}) for agent in agents]
    lines: list[str] = []
    for position, (agent, score, cells) in enumerate(zip(agents, scores, metric_cells(scores), strict=True)):
        index = agent.get("agent_index")
        number = (index if isinstance(index, int) else position) + 1
        parts = [
            formats.text(agent.get("harness") or "official scaffold"),
            formats.text(agent.get("model_display_name") or agent.get("model") or agent.get("model_ref")),
            formats.title(agent.get("status")),
        ]
        if score.get("rank") is not None:
            parts.append(f"#{score['rank']}")
        parts += cells
        if agent.get("environment_variables"):
            parts.append(f"env {variables_text(agent['environment_variables'])}")
        lines.append(f"Agent {number}: {SEPARATOR.join(parts)}")
    return [Block("Agents", lines)]


def _agent_scores(agent: dict[str, Any], metric: dict[str, Any]) -> dict[str, Any]:
    """The metrics of an agent in the words of a leaderboard entry."""
    sums, tasks = agent.get("aggregates") or {}, metric.get("n_tasks")
    spent = sums.get("reported_cost_usd")
    each = spent / tasks if formats.is_number(spent) and formats.is_number(tasks) and tasks > 0 else None
    return {
        **serializers.pick(metric, ["rank", "pass_at_1", "pass_at_k"]),
        **serializers.pick(sums, ["mean_duration_seconds", "tokens_per_task"]),
        "cost_per_task": each,
    }


def _totals(totals: dict[str, Any]) -> list[Block]:
    outcomes = ", ".join(
        f"{totals[key]:,} {key}"
        for key in ("passed", "failed", "errored", "cancelled")
        if formats.is_number(totals.get(key))
    )
    lines = [f"Outcomes: {outcomes}"] if outcomes else []
    for label, key in (("Input Tokens", "total_input_tokens"), ("Output Tokens", "total_output_tokens")):
        if formats.is_number(totals.get(key)):
            lines.append(f"{label}: {formats.count(totals[key])}")
    if formats.is_number(totals.get("total_cost_usd")):
        lines.append(f"LLM Cost: ${totals['total_cost_usd']:.4f}")
    return [Block("Results", lines)] if lines else []


def _hints(name: str, run: dict[str, Any]) -> list[str]:
    hints = [f"View: {run['platform_url']}"] if run.get("platform_url") else []
    if run["status"] == "failed":
        hints.append(f"See logs with: osmosis benchmark runs logs {quote(name)}")
    elif run["status"] in {"running", "finished", "stopped"}:
        hints.append(f"Download with: osmosis benchmark runs download {quote(name)}")
    return hints


_RUNS = Listing(
    PATH,
    "benchmark_runs",
    "Benchmark Runs",
    run_item,
    RUN_COLUMNS,
    when_empty="No benchmark runs yet. Start one with: osmosis benchmark submit configs/benchmark/<name>.toml",
    next_text=["Details: osmosis benchmark runs info <name>"],
)
