"""Process that checks parts of a JSONL file: a request per line on stdin, an answer per line on stdout, until stdin ends."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from osmosis_ai.datasets.parts import read_part, to_json


def main() -> None:
    """Answer `[path, start, end]` with what the part has shown."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks; it ends this one
    for request in sys.stdin.buffer:
        path, start, end = json.loads(request)
        answer = json.dumps(to_json(read_part(Path(path), start, end)))
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
