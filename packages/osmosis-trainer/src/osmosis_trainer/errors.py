"""The one exception tree of the trainer. Every error carries a stable `code` that run events show as `error_type`."""

from __future__ import annotations


class TrainerError(Exception):
    """Root of everything the trainer raises on purpose."""

    code = "trainer_error"


class ConfigError(TrainerError):
    """A setting the trainer or the chosen engine cannot honour; nothing was started."""

    code = "config_invalid"


class EngineError(TrainerError):
    """The engine could not do what it was asked."""

    code = "engine_error"


class EngineClosedError(EngineError):
    """The engine was closed while or before the request was served."""

    code = "engine_closed"


class ContextLengthError(EngineError):
    """Prompt plus requested tokens do not fit the model's context."""

    code = "context_length_exceeded"

    def __init__(self, message: str, *, prompt_tokens: int, max_tokens: int, max_context: int) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.max_context = max_context


class UnsupportedModelError(EngineError):
    """The model's architecture cannot be sampled or trained exactly by this engine."""

    code = "model_unsupported"


class UnknownAdapterError(EngineError):
    """No adapter of that name is loaded."""

    code = "adapter_unknown"


class StateError(TrainerError):
    """A saved training state is missing a piece or does not belong to this run."""

    code = "state_invalid"


class NonFiniteLossError(TrainerError):
    """A loss or gradient became infinite or not a number; the accumulated gradient was discarded."""

    code = "loss_not_finite"
