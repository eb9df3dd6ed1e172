"""How much of the machine one sandbox may use."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """``memory_mb``: of all processes together, in MiB. ``processes``: with their threads. ``file_mb``: the size of one file.
    ``output_mb``: what is kept of each output stream of a command; the rest is dropped.
    """

    memory_mb: int = 4096
    processes: int = 1024
    file_mb: int = 4096
    output_mb: int = 16
