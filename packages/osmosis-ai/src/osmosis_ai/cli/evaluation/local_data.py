"""Where a local evaluation takes its rows from: a file, or a dataset of the platform, which is kept for the next time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.cli.errors import CLIError

CACHE = Path(".cache") / "osmosis" / "datasets"


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset file. ``kind`` says how it came here."""

    path: Path
    name: str
    kind: Literal["explicit", "cache", "download"]


def dataset_source(dataset_file: str | None, dataset: str) -> Source:
    """The file given, or the platform's dataset of that name.

    Raises:
        CLIError: the file does not exist, or the dataset is not ready.
        AuthError, PlatformError: the dataset cannot be fetched.
    """
    if dataset_file is not None:
        path = Path(dataset_file).expanduser().absolute()
        if not path.is_file():
            raise CLIError(f"Dataset file not found: {path}", details={"path": str(path)})
        return Source(path, dataset, "explicit")
    return _platform_dataset(dataset)


def _platform_dataset(dataset: str) -> Source:
    from osmosis_ai.cli.datasets.download import fetch_dataset, ready_dataset
    from osmosis_ai.cli.output.messages import status
    from osmosis_ai.cli.workspace import open_workspace

    workspace = open_workspace()
    with workspace.client as client:
        with status("Looking up the dataset..."):
            found = ready_dataset(client, dataset)
        folder = Path.home() / CACHE / str(found["id"])
        if (cached := _cached(folder, found)) is not None:
            return Source(cached, dataset, "cache")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "source.json").unlink(missing_ok=True)
        path = fetch_dataset(client, found, str(folder), overwrite=True)
    document = {"file": path.name, "updated_at": found.get("updated_at"), "size": path.stat().st_size}
    (folder / "source.json").write_text(json.dumps(document), encoding="utf-8")
    return Source(path, dataset, "download")


def _cached(folder: Path, found: dict[str, Any]) -> Path | None:
    """The file of an earlier download, if the dataset has not changed since."""
    try:
        known = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        path = folder / Path(str(known["file"])).name
        fresh = known["updated_at"] == found.get("updated_at") and path.stat().st_size == known["size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path if fresh else None
