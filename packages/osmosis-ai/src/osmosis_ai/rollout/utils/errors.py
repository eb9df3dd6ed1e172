"""From an exception to the error category of the protocol."""

from osmosis_ai.rollout.types.enums import RolloutErrorCategory


def categorize_exception(error: BaseException) -> RolloutErrorCategory:
    """Timeouts are ``timeout``; value, type and assertion errors ``validation_error``; everything else ``agent_error``."""
    if isinstance(error, TimeoutError):
        return RolloutErrorCategory.TIMEOUT
    if isinstance(error, ValueError | TypeError | AssertionError):
        return RolloutErrorCategory.VALIDATION_ERROR
    return RolloutErrorCategory.AGENT_ERROR
