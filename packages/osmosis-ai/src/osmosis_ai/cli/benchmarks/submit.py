"""``osmosis benchmark submit``, step by step."""

from shlex import quote
from typing import Any

from osmosis_ai.cli.benchmarks.runs import PATH
from osmosis_ai.cli.output.messages import status, warn
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.submit.secrets import describe_secrets, explained
from osmosis_ai.cli.workspace import Workspace, open_workspace
from osmosis_ai.config.benchmark import (
    DEFAULT_ATTEMPTS_PER_TASK,
    DEFAULT_MAX_CONCURRENT_ATTEMPTS,
    BenchmarkConfig,
    load_benchmark_config,
)
from osmosis_ai.platform.errors import PlatformError


def submit_benchmark(config_path: str, *, yes: bool) -> OperationResult:
    """Check the config and its secrets, ask, then submit.

    Raises:
        ConfigError, CLIError: something local is wrong, or a secret does not exist.
        PlatformError: the platform refused.
    """
    workspace = open_workspace()
    config = load_benchmark_config(config_path, workspace.root)
    _recommend_parity(config)
    with workspace.client as client:
        with status("Checking secrets..."):
            scopes = describe_secrets(workspace, config.secrets)
        question = Question("Submit this benchmark run?", summary(config, scopes), default=True)
        if not confirmed(question, yes=yes):
            return OperationResult("benchmark.submit", status="cancelled", message="Cancelled.")
        with status("Submitting benchmark run..."):
            try:
                answer = client.post(PATH, config.request_body())
            except PlatformError as error:
                raise explained(error) from error
    return _result(workspace, config, answer)


def _recommend_parity(config: BenchmarkConfig) -> None:
    if config.experiment.benchmark.lower() == "hle" and config.tasks.task_set != "parity":
        warn(
            "HLE_PARITY_RECOMMENDED",
            'For HLE the published sample is recommended: task_set = "parity" in [tasks]. Without it the full benchmark runs.',
        )


def summary(config: BenchmarkConfig, scopes: dict[str, str]) -> dict[str, str]:
    """What the confirmation shows."""
    attempts = config.execution.attempts_per_task
    concurrent = config.execution.max_concurrent_attempts
    shown = {
        "Benchmark": config.experiment.benchmark,
        "Tasks": _tasks(config),
        "Agents": str(len(config.agents)),
        "Attempts per task": str(DEFAULT_ATTEMPTS_PER_TASK if attempts is None else attempts),
        "Max concurrent attempts": str(DEFAULT_MAX_CONCURRENT_ATTEMPTS if concurrent is None else concurrent),
    }
    for number, agent in enumerate(config.agents, start=1):
        shown[f"agent.{number} · {agent.harness or 'default'}"] = agent.model.label
    shown |= {f"env.{name}": config.env[name] for name in sorted(config.env)}
    for number, agent in enumerate(config.agents, start=1):
        for name in sorted(agent.env):
            overrides = " (overrides global)" if name in config.env else ""
            shown[f"env.agent {number} · {name}"] = f"{agent.env[name]}{overrides}"
    return shown | {f"secret.{name}": scopes[name] for name in sorted(scopes)}


def _tasks(config: BenchmarkConfig) -> str:
    tasks = config.tasks
    if tasks.task_set is not None:
        return tasks.task_set
    parts = [f"{len(tasks.task_names)} task(s)"] if tasks.task_names else []
    parts += [f"{len(tasks.categories)} category(s)"] if tasks.categories else []
    return ", ".join(parts) or "all tasks"


def _result(workspace: Workspace, config: BenchmarkConfig, answer: dict[str, Any]) -> OperationResult:
    name, url = answer["name"], answer.get("platform_url")
    resource: dict[str, Any] = {
        "id": answer["id"],
        "name": name,
        "status": answer["status"],
        "benchmark_name": config.experiment.benchmark,
        "workflow_id": answer["workflow_id"],
        "task_count": answer["task_count"],
        "created_at": answer["created_at"],
    }
    if url:
        resource["platform_url"] = url
    resource |= workspace.context
    resource["config"] = {
        "experiment": config.experiment.written(),
        "tasks": config.tasks.written(),
        "agents": config.agent_documents(),
        "execution": config.execution.written(),
    }
    steps: list[dict[str, Any]] = [{"action": "benchmark_info", "name": name}, {"action": "benchmark_list"}]
    text = [
        f"Status: {answer['status']}",
        f"Benchmark: {config.experiment.benchmark}",
        f"Tasks: {answer['task_count']}",
        f"Agents: {len(config.agents)}",
    ]
    if url:
        steps.append({"action": "open_url", "url": url})
        text.append(f"View: {url}")
    text.append(f"Follow it with: osmosis benchmark runs info {quote(name)}")
    return OperationResult(
        "benchmark.submit",
        resource=resource,
        message=f"Benchmark run submitted: {name}",
        next_steps=steps,
        next_text=text,
    )
