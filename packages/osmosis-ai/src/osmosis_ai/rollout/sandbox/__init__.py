"""A sandbox on this machine for trials of Harbor, without containers. Needs the ``harbor`` extra, on first use.

Select it with ``EnvironmentConfig(import_path="osmosis_ai.rollout.sandbox:BubblewrapEnvironment")``.
"""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

if TYPE_CHECKING:
    from osmosis_ai.rollout.sandbox.environment import BubblewrapEnvironment

__getattr__, __dir__ = lazy_facade(
    __name__,
    {"BubblewrapEnvironment": "osmosis_ai.rollout.sandbox.environment"},
    needs="harbor",
)

__all__ = ["BubblewrapEnvironment"]
