"""One line typed at a terminal. Esc gives up: no line-editing prompt of the standard library can tell it from text."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ESC, _ERASE, _KILL, _END_OF_INPUT = 0x1B, (0x7F, 0x08), 0x15, 0x04
_FIRST_FINAL, _LAST_FINAL = 0x40, 0x7E
_REST_OF_A_KEY_S = 0.05


def typed_line(prompt: str, *, hidden: bool = False) -> str | None:
    """What was typed, without the line's end; None after Esc. A hidden line is not shown.

    Keys that send an escape sequence, such as arrows, do nothing.

    Raises:
        EOFError: the input has ended.
        KeyboardInterrupt: Ctrl-C.
    """
    with _every_key() as descriptor:  # before the prompt: what is typed at once is not shown either
        sys.stderr.write(prompt)
        sys.stderr.flush()
        try:
            line = _read(descriptor, hidden)
        finally:
            sys.stderr.write("\n")
            sys.stderr.flush()
    return None if line is None else line.decode("utf-8", errors="surrogateescape")


def _read(descriptor: int, hidden: bool) -> bytes | None:
    line = bytearray()
    while True:
        key = os.read(descriptor, 1)
        if not key or (key[0] == _END_OF_INPUT and not line):
            raise EOFError
        if key in (b"\n", b"\r"):
            return bytes(line)
        if key[0] == _ESC:
            if not _rest_of_key(descriptor):
                return None
        elif key[0] in _ERASE:
            _erase(line, hidden, 1)
        elif key[0] == _KILL:
            _erase(line, hidden, len(line))
        elif key[0] >= 0x20 or key == b"\t":
            line += key
            _show(key.replace(b"\t", b" "), hidden)


def _rest_of_key(descriptor: int) -> bool:
    """Take what follows Esc when it began the sequence of another key; whether it did."""
    if not select.select([descriptor], [], [], _REST_OF_A_KEY_S)[0]:
        return False
    following = os.read(descriptor, 1)
    if following == b"O":
        os.read(descriptor, 1)
    while following == b"[" or (following and not _FIRST_FINAL <= following[0] <= _LAST_FINAL):
        following = os.read(descriptor, 1)
    return True


def _erase(line: bytearray, hidden: bool, characters: int) -> None:
    for _ in range(characters):
        if not line:
            return
        while len(line) > 1 and line[-1] & 0xC0 == 0x80:  # the later bytes of one UTF-8 character
            line.pop()
        line.pop()
        _show(b"\b \b", hidden)


def _show(text: bytes, hidden: bool) -> None:
    """Show what is typed, also where standard error goes into a file: a terminal that is read can be written too."""
    if not hidden:
        place = sys.stderr if sys.stderr.isatty() else sys.stdin
        with suppress(OSError):
            os.write(place.fileno(), text)


@contextmanager
def _every_key() -> Iterator[int]:
    """Standard input gives each key at once and shows none; Ctrl-C still interrupts."""
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
