"""What holds for every test."""

import signal
import threading


def pytest_configure() -> None:
    """Let programs that tests start hear Ctrl-C: a shell that runs the tests in the background has it ignored, and they inherit that."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)
