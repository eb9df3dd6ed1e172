"""Removing folders that code of users wrote into."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Remove a folder with all below it, links unfollowed. What cannot be removed stays; a missing folder is fine."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # Python 3.12 follows no more than about a thousand folders inside each other
        subprocess.run(
            ["rm", "-rf", "--", str(folder.absolute())],
            check=False,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
