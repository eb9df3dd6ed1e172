"""Run benchmarks and print a table: `python -m benchmarks [NAME ...] [--json out.json]`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path

import benchmarks
from benchmarks.result import Result

_NOT_BENCHMARKS = {"__main__", "gpu_parts", "result", "multiply_workload", "platform_parts", "rollout_parts"}


def names() -> list[str]:
    """Every benchmark there is."""
    return sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in _NOT_BENCHMARKS)


def table(results: list[Result]) -> str:
    """The results as aligned columns."""
    rows = [("benchmark", "value", "unit", "ratio", "against")]
    rows += [(r.name, f"{r.value:.4g}", r.unit, f"x{r.ratio:.2f}", r.against) for r in results]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which to run (default all): {', '.join(names())}"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(names())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    results: list[Result] = []
    for name in arguments.names or names():
        print(f"running {name} ...", file=sys.stderr, flush=True)
        with redirect_stdout(sys.stderr):  # what the alternatives print is no result
            results += importlib.import_module(f"benchmarks.{name}").run()
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
