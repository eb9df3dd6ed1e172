"""Exit statuses of a worker."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """How a worker ended. Anything else is a crash, after which the supervisor starts it again."""

    FINISHED = 0
    STOPPED = 3
    FAILED = 4
    """The reason was sent as an event."""
    ORPHANED = 70
    """Standard input was closed: the parent is gone."""
    UNREACHABLE = 75
    """The platform did not answer for two minutes; nothing more can be reported."""
