"""Files in and out of a sandbox.

Both ends of a copy are programs: the one in the sandbox sees the sandbox only, so no link in there can lead to a file of the
host. What comes out is unpacked as plain files and folders; links, devices and pipes stay behind.
"""

import logging
import os
import shutil
import tarfile
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)


def pack_file(source: Path, name: str, archive: IO[bytes]) -> None:
    """Write one file, under another name, to an archive for the sandbox."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source.resolve(), arcname=name, recursive=False, filter=_owned_by_root)


def pack_folder(source: Path, archive: IO[bytes]) -> None:
    """Write the content of a folder to an archive for the sandbox."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(source.iterdir()):
            tar.add(path, arcname=path.name, filter=_owned_by_root)


def unpack_folder(archive: IO[bytes], target: Path) -> None:
    """Put the regular files and folders of an archive from the sandbox into a folder, over what is there.

    Raises:
        tarfile.TarError: when the archive is broken or a name leads out of the folder.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        tar.extractall(target, filter=_plain)


def unpack_file(archive: IO[bytes], target: Path) -> bool:
    """Put the one regular file of an archive from the sandbox to a path; False when it holds none."""
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(content, target)
                return True
    return False


def _plain(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.isdir()):
        logger.warning("Leaving %s in the sandbox: only files and folders come out", member.name)
        return None
    safe = tarfile.data_filter(member, path)
    # Whoever reads the files here must be able to, and to remove the folders.
    return safe.replace(mode=0o755 if safe.isdir() else 0o644, deep=False)


def _copy(content: IO[bytes], target: Path) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            shutil.copyfileobj(content, file)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="root", gname="root", deep=False)
