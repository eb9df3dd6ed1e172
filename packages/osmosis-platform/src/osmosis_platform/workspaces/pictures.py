"""What a PNG, JPEG or WebP file holds, told from its structure: a cut, damaged or enormous picture is found without drawing it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

MAX_SIDE = 4096
_PNG = b"\x89PNG\r\n\x1a\n"
# By colour type: the numbers of a pixel, and how many bits each may have.
_PNG_PIXELS = {
    0: (1, (1, 2, 4, 8, 16)),
    2: (3, (8, 16)),
    3: (1, (1, 2, 4, 8)),
    4: (2, (8, 16)),
    6: (4, (8, 16)),
}
# Of an interlaced PNG: first column and row of each pass, and the steps between them.
_ADAM7 = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
_INFLATE_STEP = 1 << 20
_JPEG_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class BadPicture(ValueError):
    """Says in a few words why the bytes are no picture that a browser draws."""


def picture_type(content: bytes) -> str:
    """The media type of a whole picture of 1 to `MAX_SIDE` pixels a side, whatever its name says. Raises BadPicture."""
    for media_type, begins, size_of in _KINDS:
        if begins(content):
            width, height = size_of(content)
            _check_sides(width, height)
            return media_type
    raise BadPicture("it is of another kind")


def _check_sides(width: int, height: int) -> None:
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise BadPicture(f"it says that it has {width} x {height} pixels")


def _png_size(content: bytes) -> tuple[int, int]:
    header = b""
    palette = False
    data = []
    for kind, body in _png_chunks(content):
        if not header and (kind != b"IHDR" or len(body) != 13):
            raise BadPicture("it does not begin with a PNG header")
        if kind == b"IHDR":
            header = header or body
        elif kind == b"PLTE":
            palette = True
        elif kind == b"IDAT":
            data.append(body)
    width, height = int.from_bytes(header[:4]), int.from_bytes(header[4:8])
    _check_sides(width, height)
    depth, colour, compression, filtering, interlaced = header[8:]
    numbers, depths = _PNG_PIXELS.get(colour, (0, ()))
    if depth not in depths or compression or filtering or interlaced > 1 or (colour == 3 and not palette):
        raise BadPicture("its PNG header says what no PNG has")
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    needed = sum(
        _rows_size(-((left - width) // across), -((top - height) // down), numbers * depth)
        for left, top, across, down in passes
    )
    if not _inflates_to(b"".join(data), needed):
        raise BadPicture("its pixels are missing or damaged")
    return width, height


def _png_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG)
    while True:
        length, kind = int.from_bytes(content[at : at + 4]), content[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(content):
            raise BadPicture("it ends too early")
        if zlib.crc32(content[at + 4 : end - 4]) != int.from_bytes(content[end - 4 : end]):
            raise BadPicture("the checksum of a part is wrong")
        yield kind, content[at + 8 : end - 4]
        if kind == b"IEND":
            return
        at = end


def _rows_size(columns: int, rows: int, bits: int) -> int:
    """The bytes of so many rows of pixels, each behind the byte of its filter."""
    return rows * (1 + (columns * bits + 7) // 8) if columns > 0 and rows > 0 else 0


def _inflates_to(data: bytes, needed: int) -> bool:
    """Whether the stream holds that many bytes. Little memory is used and no more is inflated, however much it holds."""
    stream = zlib.decompressobj()
    found = 0
    try:
        while found < needed:
            part = stream.decompress(data, _INFLATE_STEP)
            data = stream.unconsumed_tail
            if not part:
                return False
            found += len(part)
    except zlib.error:
        return False
    return True


def _jpeg_size(content: bytes) -> tuple[int, int]:
    size: tuple[int, int] | None = None
    scanned = False
    at = 2
    while (marker := content[at : at + 2]) != b"\xff\xd9":
        if len(content) < at + 4:
            raise BadPicture("it ends too early")
        if marker[0] != 0xFF:
            raise BadPicture("a part of it does not begin where the one before it ends")
        if marker[1] == 0xFF:  # fill
            at += 1
            continue
        body = content[at + 4 : at + 2 + int.from_bytes(content[at + 2 : at + 4])]
        if marker[1] in _JPEG_FRAMES:
            size = int.from_bytes(body[3:5]), int.from_bytes(body[1:3])
        at += 4 + len(body)
        if marker[1] == 0xDA:
            scanned = True
            at = _end_of_scan(content, at)
    if size is None or not scanned:
        raise BadPicture("its pixels are missing")
    return size


def _end_of_scan(content: bytes, at: int) -> int:
    """Where the next marker is: in a scan, FF before 00 is a value, and D0 to D7 only mark where to go on after damage."""
    while (at := content.find(b"\xff", at)) >= 0 and at + 1 < len(content):
        if content[at + 1] != 0 and not 0xD0 <= content[at + 1] <= 0xD7:
            return at
        at += 2
    raise BadPicture("it ends too early")


def _webp_size(content: bytes) -> tuple[int, int]:
    if int.from_bytes(content[4:8], "little") + 8 != len(content):
        raise BadPicture("it is longer or shorter than it says")
    canvas: tuple[int, int] | None = None
    picture: tuple[int, int] | None = None
    for kind, body in _webp_chunks(content):
        if kind == b"VP8X" and len(body) >= 10:
            canvas = _little(body[4:7]) + 1, _little(body[7:10]) + 1
        elif kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a" and _little(body[:3]) >> 5 <= len(body) - 10:
            picture = _little(body[6:8]) & 0x3FFF, _little(body[8:10]) & 0x3FFF
        elif kind == b"VP8L" and body[:1] == b"\x2f" and len(body) > 5:
            bits = _little(body[1:5])
            picture = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        elif kind == b"ANMF" and len(body) > 16:
            picture = _little(body[6:9]) + 1, _little(body[9:12]) + 1
    if picture is None:
        raise BadPicture("its pixels are missing or damaged")
    _check_sides(*picture)
    return canvas or picture


def _webp_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at < len(content):
        length = _little(content[at + 4 : at + 8])
        if at + 8 + length > len(content):
            raise BadPicture("it ends too early")
        yield content[at : at + 4], content[at + 8 : at + 8 + length]
        at += 8 + length + length % 2


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")


_KINDS: tuple[tuple[str, Callable[[bytes], bool], Callable[[bytes], tuple[int, int]]], ...] = (
    ("image/png", lambda content: content.startswith(_PNG), _png_size),
    ("image/jpeg", lambda content: content.startswith(b"\xff\xd8\xff"), _jpeg_size),
    ("image/webp", lambda content: content[:4] == b"RIFF" and content[8:12] == b"WEBP", _webp_size),
)
