"""Log lines for machines."""

from __future__ import annotations

import json
import logging
import sys

from osmosis_platform.logs import JsonLines


def test_one_object_a_line_with_the_traceback() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        record = logging.LogRecord("room", logging.ERROR, "f", 1, "job %s\nfailed", ("7",), sys.exc_info())
    text = JsonLines().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("error", "room", "job 7\nfailed")
    assert "ValueError: first\nsecond" in line["error"]
    assert line["time"].endswith("+00:00")
