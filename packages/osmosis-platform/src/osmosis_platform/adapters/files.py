"""Adapter folders on disk: unpacked once from the checkpoint's tar, then reused."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput

MAX_MEMBERS = 200
MAX_BYTES = 64 * 1024**3


def adapter_folder(platform: Platform, model: LoraModel) -> Path:
    """The folder with the adapter in PEFT format, unpacked from its blob if it is not there yet.

    Raises InvalidInput when the blob holds no adapter, NotFound when it is gone.
    """
    root = platform.settings.data_dir.resolve() / "adapters"
    folder = root / model.id
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix="unpacking-", dir=root))
    try:
        with platform.blobs.open(model.blob_sha256) as blob:
            unpack_adapter(blob, staging)
        try:
            os.rename(staging, folder)
        except OSError:
            if not folder.is_dir():  # else another thread was faster, with the same bytes
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def unpack_adapter(source: object, folder: Path) -> None:
    """Unpack a tar of plain files; links, devices and paths that leave the folder are refused (InvalidInput)."""
    total = 0
    try:
        with tarfile.open(fileobj=source, mode="r:*") as archive:  # type: ignore[call-overload]
            for count, member in enumerate(archive):
                total += member.size
                if count >= MAX_MEMBERS or total > MAX_BYTES:
                    raise InvalidInput("The adapter archive is too large.")
                if not (member.isfile() or member.isdir()):
                    raise InvalidInput(f"The adapter archive holds {member.name!r}, which is no plain file.")
                archive.extract(member, folder, filter="data")
    except tarfile.TarError as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise InvalidInput(f"The adapter archive cannot be unpacked: {reason}") from error
    _lift_single_folder(folder)
    if not (folder / "adapter_config.json").is_file():
        raise InvalidInput(
            "The adapter archive holds no adapter_config.json; it has to be a folder in PEFT format."
        )


def _lift_single_folder(folder: Path) -> None:
    """An archive of `name/...` and one of `./...` unpack to the same."""
    entries = list(folder.iterdir())
    if len(entries) == 1 and entries[0].is_dir():
        for entry in list(entries[0].iterdir()):
            entry.rename(folder / entry.name)
        entries[0].rmdir()
