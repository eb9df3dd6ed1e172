"""Putting a short text into the clipboard of whoever sits at the terminal."""

import base64
import os
import shutil
import subprocess
import sys

_PROGRAMS = (
    ("", ("pbcopy",)),
    ("", ("clip.exe",)),
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
)
_TIMEOUT_S = 2.0
# These print the sequence or hang on it.
_TERMINALS_WITHOUT = frozenset({"", "dumb", "linux"})


def copy_text(text: str) -> bool:
    """Whether a program of the desktop took the text. Without one the terminal is asked (OSC 52), which does not answer: over SSH
    that reaches the user's own machine.
    """
    for variable, command in _PROGRAMS:
        if (
            (not variable or os.environ.get(variable))
            and shutil.which(command[0])
            and _given_to(command, text)
        ):
            return True
    if sys.stderr.isatty() and os.environ.get("TERM", "") not in _TERMINALS_WITHOUT:
        sys.stderr.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")
        sys.stderr.flush()
    return False


def _given_to(command: tuple[str, ...], text: str) -> bool:
    try:
        # A clipboard program may go on in the background: it must not hold our output.
        answer = subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0
