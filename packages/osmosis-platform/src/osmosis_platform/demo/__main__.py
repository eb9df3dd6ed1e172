"""`python -m osmosis_platform.demo`: the whole loop on a fresh platform.

Starts the platform in a new folder, then does what a customer does, through the `osmosis` command: check the workspace, upload data,
push, evaluate the base model, train, deploy, chat, evaluate again.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

from osmosis_platform.demo.console import Narrator
from osmosis_platform.demo.customer import CommandFailed, Customer
from osmosis_platform.demo.figures import Figures
from osmosis_platform.demo.host import Host, PlatformDied
from osmosis_platform.demo.story import tell


def main(argv: list[str] | None = None) -> int:
    """Run the demo; 0 when every step worked."""
    options = _options(argv)
    narrator = Narrator()
    folder: Path = options.folder or Path(f"demo-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and any(folder.iterdir()):
        narrator.error(f"{folder} is not empty: choose another folder with --folder")
        return 1
    host = Host(folder.resolve(), port=options.port, narrator=narrator)
    try:
        account = host.prepare()
        host.start()
        customer = Customer(host, account, narrator)
        figures = tell(
            host, customer, narrator, seed=options.seed, rollout=options.rollout, steps=options.steps
        )
        _write_json(options.json, figures)
        narrator.report(figures, host)
        if not options.once:
            narrator.say(f"The platform stays up at {host.url} until Ctrl-C.")
            host.wait()
    except (CommandFailed, PlatformDied) as error:
        narrator.error(f"{error}\nThe platform's log: {host.log_path}")
        return 1
    except KeyboardInterrupt:
        narrator.say("\nStopping.")
        return 0 if not options.once else 130
    finally:
        host.stop()
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the report instead of staying up")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--seed", type=int, default=0, help="seed of training and evaluation (default 0)")
    parser.add_argument("--steps", type=int, default=20, help="training steps (default 20)")
    parser.add_argument(
        "--rollout",
        default="multiply-local-openai",
        choices=["multiply-local-openai", "multiply-local-strands"],
        help="starter to use",
    )
    parser.add_argument("--folder", type=Path, help="new folder for everything (default demo-<date>-<time>)")
    parser.add_argument("--port", type=int, help="port of the platform (default 8400, or a free one)")
    return parser.parse_args(argv)


def _write_json(path: Path | None, figures: Figures) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures.to_json(), indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
