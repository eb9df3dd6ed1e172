"""The platform's API over the seeded folder, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.platform_parts.seed import settings
from benchmarks.rollout_parts.process import serve
from osmosis_platform.app import create_app
from osmosis_platform.context import open_platform

if __name__ == "__main__":
    serve(create_app(open_platform(settings(Path(sys.argv[2])))))
