"""The HTTP server of a rollout entrypoint. Needs the ``server`` extra, on first use."""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

if TYPE_CHECKING:
    from osmosis_ai.rollout.server.app import create_rollout_server
    from osmosis_ai.rollout.server.auth import ControllerAuth

__getattr__, __dir__ = lazy_facade(
    __name__,
    {
        "ControllerAuth": "osmosis_ai.rollout.server.auth",
        "create_rollout_server": "osmosis_ai.rollout.server.app",
    },
    needs="server",
)

__all__ = ["ControllerAuth", "create_rollout_server"]
