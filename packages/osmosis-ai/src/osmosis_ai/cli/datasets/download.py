"""Downloading a dataset file."""

import os
from collections.abc import Mapping
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from osmosis_ai.cli import serializers
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import progress, status
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.workspace import open_workspace
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.api.download import Place, fetch
from osmosis_ai.platform.api.transfer import transfer_client
from osmosis_ai.platform.errors import PlatformError

_IN_PROGRESS = {"uploading", "pending", "processing"}
_EXTENSIONS = {".csv", ".jsonl", ".parquet"}


def download_dataset(name: str, output: str | None, *, overwrite: bool) -> OperationResult:
    """Fetch the stored file of a dataset into the current folder, a folder, or an exact path.

    Raises:
        CLIError: not ready yet, or the target exists.
        PlatformError: the download failed; nothing is left behind.
    """
    workspace = open_workspace()
    with workspace.client as client:
        with status("Fetching dataset..."):
            found = ready_dataset(client, name)
        target = fetch_dataset(client, found, output, overwrite=overwrite)
    return OperationResult(
        "dataset.download",
        resource={**serializers.dataset(found), "output_path": str(target), **workspace.context},
        message=f"Downloaded {target.name} ({formats.size(target.stat().st_size)}) to {target}",
    )


def ready_dataset(client: PlatformClient, name: str) -> dict[str, Any]:
    """The dataset as the platform describes it.

    Raises:
        CLIError: its file cannot be downloaded yet, or never.
    """
    found = client.get(f"/datasets/{segment(name)}")
    _require_ready(found)
    return found


def fetch_dataset(
    client: PlatformClient, found: dict[str, Any], output: str | None, *, overwrite: bool = False
) -> Path:
    """Download the file of a dataset; its path.

    Raises:
        CLIError: the target exists, or its folder does not.
        PlatformError: the download failed; nothing is left behind.
    """
    addresses = _Addresses(client, found)
    target, free_name = _target(output, _file_name(addresses.answer, found, addresses.url))

    def place(headers: Mapping[str, str]) -> Path:
        announced = _announced_name(headers) if free_name else None
        final = target.with_name(_announced(announced, found, addresses.url)) if announced else target
        if final.exists() and not overwrite:
            raise CLIError(
                f"File already exists: {final}. Use --overwrite to replace it.", details={"path": str(final)}
            )
        return final

    return _fetch(addresses, target, found.get("file_size"), place)


class _Addresses:
    """The address of a dataset's file, asked for again when it has expired."""

    def __init__(self, client: PlatformClient, found: dict[str, Any]) -> None:
        self._client, self._id = client, str(found["id"])
        self._ask()

    def _ask(self) -> None:
        self.answer = self._client.get(f"/datasets/{segment(self._id)}/download")
        url = self.answer.get("presigned_url") or self.answer.get("presignedUrl")
        if not isinstance(url, str):
            raise PlatformError("The platform gave no address for the file.")
        self.url = url

    def get(self, renew: bool) -> str:
        """The address, a new one when asked."""
        if renew:
            self._ask()
        return self.url


def _require_ready(found: dict[str, Any]) -> None:
    state = found.get("status")
    if state in _IN_PROGRESS:
        raise CLIError(f"The dataset is still processing (status: {state}). Try again when it is uploaded.")
    if state != "uploaded":
        raise CLIError(f"The dataset is not available for download (status: {state}).")


def _fetch(addresses: _Addresses, target: Path, size: Any, place: Place) -> Path:
    done = 0
    with transfer_client(addresses.url) as client, progress("Downloading", size or 0) as show:

        def add(count: int) -> None:
            nonlocal done
            done += count
            show(done)

        try:
            return fetch(client, addresses.get, target, expected_size=size or None, added=add, place=place)
        except PlatformError as error:
            raise PlatformError(f"Download failed: {error.message}", details=error.details) from error


def _file_name(answer: dict[str, Any], found: dict[str, Any], url: str) -> str:
    given = [answer.get(key) for key in ("file_name", "fileName", "download_file_name", "downloadFileName")]
    chosen = next(str(name) for name in [*given, found.get("file_name"), found["id"]] if name)
    return _with_extension(chosen, found, url)


def _with_extension(name: str, found: dict[str, Any], url: str) -> str:
    """The last part of a name, with the extension of the address or of the dataset when it has none of a dataset file."""
    base = PurePosixPath(name.replace("\\", "/")).name.strip()
    if not base.strip("."):
        base = "dataset"
    if PurePosixPath(base).suffix.lower() not in _EXTENSIONS:
        suffix = PurePosixPath(unquote(urlsplit(url).path)).suffix.lower()
        fallback = f".{found['file_format']}" if found.get("file_format") else ""
        base += suffix if suffix in _EXTENSIONS else fallback
    return base


def _announced(name: str, found: dict[str, Any], url: str) -> str:
    """The name as the store gives it; only without any extension it gets one. A dataset's own name may have dots in it."""
    base = PurePosixPath(name.replace("\\", "/")).name.strip()
    return base if PurePosixPath(base).suffix else _with_extension(name, found, url)


def _announced_name(headers: Mapping[str, str]) -> str | None:
    """The name in a Content-Disposition; None without one."""
    message = Message()
    message["Content-Disposition"] = headers.get("Content-Disposition", "")
    return message.get_filename()


def _target(output: str | None, file_name: str) -> tuple[Path, bool]:
    """Where the file goes, and whether the store may still name it."""
    if output is None:
        return Path.cwd() / file_name, True
    path = Path(output).expanduser()
    if path.is_dir():
        return path.resolve() / file_name, True
    if output.endswith((os.sep, "/")):
        raise CLIError(f"Output directory not found: {output}", details={"path": output})
    path = path.resolve()
    if not path.parent.is_dir():
        raise CLIError(f"Output directory not found: {path.parent}", details={"path": str(path.parent)})
    return path, False
