"""The OpenAI-compatible server of base models and deployed adapters."""

from osmosis_trainer.serve.app import create_app
from osmosis_trainer.serve.registry import ModelRegistry
from osmosis_trainer.serve.spec import AdapterSpec, ServeSpec

__all__ = ["AdapterSpec", "ModelRegistry", "ServeSpec", "create_app"]
