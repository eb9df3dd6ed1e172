"""Rollouts in trials of Harbor. Needs the ``harbor`` extra, on first use."""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

if TYPE_CHECKING:
    from osmosis_ai.rollout.backend.harbor.backend import HarborBackend
    from osmosis_ai.rollout.backend.harbor.tasks import TaskMode

__getattr__, __dir__ = lazy_facade(
    __name__,
    {
        "HarborBackend": "osmosis_ai.rollout.backend.harbor.backend",
        "TaskMode": "osmosis_ai.rollout.backend.harbor.tasks",
    },
    needs="harbor",
)

__all__ = ["HarborBackend", "TaskMode"]
