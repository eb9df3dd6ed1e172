"""The default engine: one process, the CPU or one GPU, torch + transformers + peft."""

from osmosis_trainer.engines.local.engine import LocalEngine, LocalSettings
from osmosis_trainer.learner.lora import LoraSettings

__all__ = ["LocalEngine", "LocalSettings", "LoraSettings"]
