"""The trainer's two processes: `python -m osmosis_trainer train` and `python -m osmosis_trainer serve`.

Both read their spec as one JSON line from standard input, which stays open as their lifeline.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the processes; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m osmosis_trainer", description=__doc__)
    parser.add_argument("process", choices=["train", "serve"], help="train a run, or serve models")
    if parser.parse_args(arguments).process == "train":
        from osmosis_trainer.train import main as process
    else:
        from osmosis_trainer.serve.process import main as process
    return process()


if __name__ == "__main__":
    sys.exit(main())
