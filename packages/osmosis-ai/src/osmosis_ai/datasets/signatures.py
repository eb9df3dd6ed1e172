"""What a file that is no JSONL or CSV really is, told by its first bytes."""

from __future__ import annotations

from pathlib import Path

_UNPACK = "the file is compressed with {}; unpack it first"
_ENCODING = "the file is {} text; save it as UTF-8"
_SIGNATURES = (
    (b"\x1f\x8b", _UNPACK.format("gzip")),
    (b"\x28\xb5\x2f\xfd", _UNPACK.format("Zstandard")),
    (b"BZh", _UNPACK.format("bzip2")),
    (b"\xfd7zXZ\0", _UNPACK.format("xz")),
    (b"PK\x03\x04", "the file is a zip archive or a spreadsheet; unpack it, or export it as CSV"),
    (b"PAR1", "the file is Parquet; give its name the ending .parquet"),
    (b"\xff\xfe\0\0", _ENCODING.format("UTF-32")),
    (b"\xff\xfe", _ENCODING.format("UTF-16")),
    (b"\xfe\xff", _ENCODING.format("UTF-16")),
)


def mistaken_for_text(path: Path) -> str | None:
    """A sentence about a file that is something else than UTF-8 text, with what to do; None for all others."""
    with path.open("rb") as file:
        start = file.read(64)
    for signature, sentence in _SIGNATURES:
        if start.startswith(signature):
            return sentence
    if len(start) >= 8 and (not any(start[::2]) or not any(start[1::2])):  # every other byte is NUL
        return _ENCODING.format("UTF-16") if any(start) else "the file begins with NUL bytes; it is no text"
    return None
