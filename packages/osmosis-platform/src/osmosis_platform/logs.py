"""Log lines on stderr: plain for people, JSON for machines. Nothing here or elsewhere logs bodies, headers or queries."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

PLAIN = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and `error` with the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(log_format: str) -> None:
    """Send everything from level info up to stderr; libraries only their warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(PLAIN))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("osmosis_platform").setLevel(logging.INFO)
    logging.captureWarnings(True)
