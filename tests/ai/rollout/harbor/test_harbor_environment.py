"""Network lists and placement of a trial's environment."""

from pathlib import Path

import pytest
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import TaskConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig

from osmosis_ai.rollout.backend.harbor.environment import (
    apply_chat_endpoint_egress,
    apply_managed_skypilot_placement,
    chat_endpoint_host,
    load_task_network_config,
)

LIST = 'network_mode = "allowlist"\nallowed_hosts = ["pypi.example"]\n'
NONE = 'network_mode = "no-network"\n'


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://policy.example:8000/v1/x", "policy.example"),
        ("http://[::1]:8000/v1", "::1"),
        ("/v1", None),
        ("", None),
        (None, None),
        ("http://[broken", None),
    ],
)
def test_the_host_of_the_policy(url: str | None, host: str | None) -> None:
    assert chat_endpoint_host(url) == host


@pytest.mark.parametrize(
    ("toml", "environment", "agent"),
    [
        ("", False, False),
        (f"[environment]\n{LIST}", True, True),
        (f"[environment]\n{NONE}", False, False),
        (f"[environment]\n{NONE}\n[agent]\n{LIST}", False, True),
        (f"[environment]\n{LIST}\n[agent]\n{NONE}", True, False),
        (f"[agent]\n{LIST}", False, True),
        (f'[[steps]]\nname = "a"\n[steps.agent]\n{LIST}\n[[steps]]\nname = "b"', False, True),
        (
            f'[[steps]]\nname = "a"\n[steps.agent]\n{LIST}\n[[steps]]\nname = "b"\n[steps.agent]\n{NONE}',
            False,
            False,
        ),
    ],
)
def test_only_lists_are_extended(toml: str, environment: bool, agent: bool) -> None:
    env_cfg, agent_cfg = EnvironmentConfig(), AgentConfig(name="oracle")
    for _ in range(2):
        apply_chat_endpoint_egress(
            env_cfg,
            agent_cfg,
            task_config=TaskConfig.model_validate_toml(toml),
            chat_completions_url="http://policy.example:8000/v1",
        )
    assert env_cfg.extra_allowed_hosts == (["policy.example"] if environment else [])
    assert agent_cfg.extra_allowed_hosts == (["policy.example"] if agent else [])


def test_nothing_is_added_without_an_endpoint_or_a_readable_task(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text("[environment\n")
    assert load_task_network_config(tmp_path) is None
    assert load_task_network_config(tmp_path / "nowhere") is None
    env_cfg, agent_cfg = EnvironmentConfig(), AgentConfig(name="oracle")
    listed = TaskConfig.model_validate_toml(f"[environment]\n{LIST}")
    apply_chat_endpoint_egress(
        env_cfg, agent_cfg, task_config=None, chat_completions_url="http://policy.example"
    )
    apply_chat_endpoint_egress(env_cfg, agent_cfg, task_config=listed, chat_completions_url="")
    assert env_cfg.extra_allowed_hosts == agent_cfg.extra_allowed_hosts == []


def test_skypilot_gets_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    sky = EnvironmentConfig(type=EnvironmentType.SKYPILOT)
    apply_managed_skypilot_placement(sky)
    assert sky.kwargs == {}
    monkeypatch.setenv("HARBOR_SKYPILOT_CONTEXT", "cluster-a")
    docker = EnvironmentConfig(type=EnvironmentType.DOCKER)
    own = EnvironmentConfig(type=EnvironmentType.SKYPILOT, kwargs={"context_name": "mine"})
    for config in (sky, docker, own):
        assert apply_managed_skypilot_placement(config) is config
    assert sky.kwargs == {"context_name": "cluster-a"}
    assert docker.kwargs == {}
    assert own.kwargs == {"context_name": "mine"}
