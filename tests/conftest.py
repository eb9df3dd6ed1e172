"""What holds for every test."""

import signal
import threading
from pathlib import Path

import pytest

# Folders whose files take longest, the longest first.
_LONGEST = ("e2e", "trainer/worker", "trainer/benchmarks", "trainer/train", "trainer/engines/split")
_HERE = Path(__file__).parent


def pytest_configure() -> None:
    """Let programs that tests start hear Ctrl-C: a shell that runs the tests in the background has it ignored, and they inherit that."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: with `--no-loadscope-reorder` processes take them in this order, and none waits at the end."""
    longest = [_HERE / folder for folder in _LONGEST]

    def place(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(longest) if item.path.is_relative_to(folder)), len(longest))

    items.sort(key=place)
