"""Lines that a web server writes for every request: in the log of a run they would push out what is worth reading."""

import re

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# Uvicorn's own format, and the one that logging.basicConfig gives its lines.
_SUCCESS = re.compile(
    r'INFO:(?:\s+|uvicorn\.access:)\S* ?- "[A-Z]+ \S+ HTTP/[\d.]+" 2\d\d(?: [A-Za-z -]*)?\s*'
)


def is_success_access_line(line: str) -> bool:
    """Whether the line of output only says that uvicorn answered a request with 2xx. Other answers may tell of a fault."""
    return _SUCCESS.fullmatch(_COLOUR.sub("", line)) is not None
