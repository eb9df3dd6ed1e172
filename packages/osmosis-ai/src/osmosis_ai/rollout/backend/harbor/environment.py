"""Settings of a trial's environment that follow from where it runs."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import NetworkMode, TaskConfig

SKYPILOT_CONTEXT_ENV = "HARBOR_SKYPILOT_CONTEXT"


def chat_endpoint_host(url: str | None) -> str | None:
    """The host of the chat endpoint without its port, or None when there is none."""
    try:
        return urlsplit(url or "").hostname or None
    except ValueError:
        return None


def load_task_network_config(task_dir: Path) -> Any | None:
    """Harbor's configuration of the task, or None when it cannot be read; Harbor itself then says why."""
    try:
        return TaskConfig.model_validate_toml((task_dir / "task.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def apply_chat_endpoint_egress(
    env_cfg: Any, agent_cfg: Any, *, task_config: Any | None, chat_completions_url: str | None
) -> None:
    """Let the agent reach the policy where the task restricts the network to a list of hosts.

    The environment's list is extended when its own mode is ``allowlist``; the agent's when some step resolves to
    ``allowlist`` and none to ``no-network``. A task that wants no network gets none.
    """
    host = chat_endpoint_host(chat_completions_url)
    if host is None or task_config is None:
        return
    baseline = task_config.environment.network_mode
    if baseline == NetworkMode.ALLOWLIST:
        _add(env_cfg.extra_allowed_hosts, host)
    task_mode = task_config.agent.network_mode or baseline
    modes = {step.agent.network_mode or task_mode for step in task_config.steps or []} or {task_mode}
    if NetworkMode.ALLOWLIST in modes and NetworkMode.NO_NETWORK not in modes:
        _add(agent_cfg.extra_allowed_hosts, host)


def apply_managed_skypilot_placement(cfg: Any) -> Any:
    """Fill the ``context_name`` of a SkyPilot environment from ``HARBOR_SKYPILOT_CONTEXT`` unless it has one; returns ``cfg``."""
    context = os.environ.get(SKYPILOT_CONTEXT_ENV)
    if context and cfg.type == EnvironmentType.SKYPILOT:
        cfg.kwargs.setdefault("context_name", context)
    return cfg


def _add(hosts: list[str], host: str) -> None:
    if host not in hosts:
        hosts.append(host)
