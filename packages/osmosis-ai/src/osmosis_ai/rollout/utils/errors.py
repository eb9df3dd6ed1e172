"""From an exception to the error category of the protocol."""

from pydantic import ValidationError

from osmosis_ai.rollout.types.enums import RolloutErrorCategory


def categorize_exception(error: BaseException) -> RolloutErrorCategory:
    """Timeouts are ``timeout``; value, type and assertion errors ``validation_error``; everything else ``agent_error``."""
    if isinstance(error, TimeoutError):
        return RolloutErrorCategory.TIMEOUT
    if isinstance(error, ValueError | TypeError | AssertionError):
        return RolloutErrorCategory.VALIDATION_ERROR
    return RolloutErrorCategory.AGENT_ERROR


def message_of(error: BaseException) -> str:
    """``str()`` of an exception; the name of its type where user code makes that fail."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def describe_exception(error: BaseException) -> str:
    """What an exception says, for people: one line for a refused value, with its name where the text alone says nothing."""
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, (error.title, *problem['loc'])))}: {problem['msg']}, got {problem['input']!r}"
            for problem in error.errors(include_url=False)
        )
    if isinstance(error, KeyError):
        return f"KeyError: {error}"
    return message_of(error) or type(error).__name__
