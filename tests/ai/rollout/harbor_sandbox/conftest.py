"""A started sandbox environment, made the way Harbor makes one."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from osmosis_ai.rollout.sandbox import BubblewrapEnvironment

type MakeSandbox = Callable[..., Awaitable[BubblewrapEnvironment]]

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "without_bubblewrap" not in item.name:
            item.add_marker(needs_bubblewrap)


@pytest.fixture
async def make_sandbox(tmp_path: Path) -> AsyncIterator[MakeSandbox]:
    """Start an environment; keyword arguments go to it. ``public`` gives it the network of the machine."""
    async with AsyncExitStack() as stack:

        async def make(
            *,
            public: bool = False,
            task: EnvironmentConfig | None = None,
            files: dict[str, str] | None = None,
            **kwargs: Any,
        ) -> BubblewrapEnvironment:
            task_dir = tmp_path / "task"
            task_dir.mkdir(exist_ok=True)
            for name, text in (files or {}).items():
                (task_dir / name).parent.mkdir(exist_ok=True)
                (task_dir / name).write_text(text)
            paths = TrialPaths(trial_dir=tmp_path / "trial")
            paths.mkdir()
            state = tmp_path / "state"
            state.mkdir(exist_ok=True)
            environment = BubblewrapEnvironment(
                environment_dir=task_dir,
                environment_name="task",
                session_id="trial__env",
                trial_paths=paths,
                task_env_config=task or EnvironmentConfig(),
                network_policy=NetworkPolicy(
                    network_mode=NetworkMode.PUBLIC if public else NetworkMode.NO_NETWORK
                ),
                **{"state_dir": str(state), **kwargs},
            )
            stack.push_async_callback(environment.stop, delete=True)
            await environment.start(force_build=False)
            return environment

        yield make
