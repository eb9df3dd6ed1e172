"""`osmosis-platform`: serve the platform, or administer it from the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from osmosis_platform.admin import add_commands
from osmosis_platform.compute.failures import is_disk_full
from osmosis_platform.errors import PlatformError
from osmosis_platform.logs import configure_logging
from osmosis_platform.settings import Settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 1 with one sentence on stderr when it did not, 2 for wrong usage."""
    options = _parser().parse_args(argv)
    try:
        settings = _settings(options)
        configure_logging(settings.log_format)
        answer = options.command(settings, options)
    except PlatformError as error:
        print(f"osmosis-platform: {error.message}", file=sys.stderr)  # noqa: T201
        return 1
    except (OSError, SQLAlchemyError) as error:
        if not is_disk_full(error):
            raise
        text = f"the disk is full ({settings.data_dir}). Make room and start again."
        print(f"osmosis-platform: {text}", file=sys.stderr)  # noqa: T201
        return 1
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            print(f"osmosis-platform: setting {name}: {problem['msg']}", file=sys.stderr)  # noqa: T201
        return 1
    if answer is not None:
        _print(answer, as_json=options.json)
    return 0


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="osmosis-platform", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--data", type=_folder, metavar="DIR", help="data folder (default: OSMOSIS_DATA_DIR or osmosis-data)"
    )
    serve = commands.add_parser("serve", parents=[shared], help="run the platform")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8400; 0 takes a free one)")
    serve.add_argument("--public-url", metavar="URL", help="address under which people reach the platform")
    serve.set_defaults(command=_serve)
    admin = commands.add_parser("admin", help="accounts, workspaces, tokens and keys")
    add_commands(admin, shared)
    return parser


def _serve(settings: Settings, _options: argparse.Namespace) -> None:
    # Only this command needs the web application and everything that starts processes.
    from osmosis_platform.server import serve

    serve(settings)


def _settings(options: argparse.Namespace) -> Settings:
    given = {
        "data_dir": options.data,
        "host": getattr(options, "host", None),
        "port": getattr(options, "port", None),
        "public_url": getattr(options, "public_url", None),
    }
    return Settings(**{name: value for name, value in given.items() if value is not None})


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer))  # noqa: T201
        return
    width = max(len(name) for name in answer)
    for name, value in answer.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        print(f"{name:{width}}  {shown}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
