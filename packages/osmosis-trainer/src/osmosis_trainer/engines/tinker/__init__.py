"""The client of servers that speak the Tinker API: Thinking Machines' service, SkyRL, and others."""

from osmosis_trainer.engines.tinker.engine import TinkerEngine
from osmosis_trainer.engines.tinker.settings import TinkerSettings

__all__ = ["TinkerEngine", "TinkerSettings"]
