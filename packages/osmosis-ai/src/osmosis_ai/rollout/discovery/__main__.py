"""``python -m osmosis_ai.rollout.discovery <rollout_dir> <entrypoint>``: one JSON line on stdout, whatever the code prints."""

import json
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Exit status 0 for a usable rollout, 1 for one with problems, 2 for wrong arguments."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m osmosis_ai.rollout.discovery <rollout_dir> <entrypoint>\n")
        return 2
    # User code may print while it is imported; that goes to stderr, also from child processes and C code.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    from osmosis_ai.rollout.discovery.finder import discover_rollout

    found = discover_rollout(Path(arguments[0]), arguments[1])
    sys.stdout.flush()
    with answer:
        answer.write(json.dumps(found.to_dict()) + "\n")
    return 0 if found.ok else 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Threads that the imported code left running must not keep this process alive.
    os._exit(status)
