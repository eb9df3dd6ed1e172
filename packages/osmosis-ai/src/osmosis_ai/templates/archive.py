"""The workspace template of a repository: its archive at a ref, fetched once and kept."""

import hashlib
import re
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from osmosis_ai.platform.auth.store import config_folder
from osmosis_ai.platform.urls import is_safe_transfer_url
from osmosis_ai.templates.errors import TemplateError

_TIMEOUT_S = 30.0
_MAX_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


def repository_template(repository: str, ref: str, *, fresh: bool) -> Path:
    """The unpacked template; with ``fresh`` it is fetched again.

    ``repository`` is ``owner/repo`` on github.com, or the https address of a repository whose host has archives at
    ``/archive/<ref>.tar.gz``.

    Raises:
        TemplateError: the address or the archive cannot be used, or the archive cannot be fetched (``NETWORK``).
    """
    key = hashlib.sha256(f"{repository}\0{ref}".encode()).hexdigest()
    folder = config_folder() / "cache" / "workspace-template" / key
    if folder.is_dir() and not fresh:
        return folder
    address = archive_address(repository, ref)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
        archive = Path(scratch) / "archive.tar.gz"
        _fetch(address, archive)
        root = _unpacked(archive, Path(scratch) / "unpacked", address)
        if folder.exists():
            folder.rename(Path(scratch) / "before")
        root.rename(folder)
    return folder


def archive_address(repository: str, ref: str) -> str:
    """Where the archive of a ref is.

    Raises:
        TemplateError: the repository is neither a name nor a safe address.
    """
    if "://" not in repository:
        if not _NAME.fullmatch(repository):
            raise TemplateError(
                f"The template repository {repository!r} is not of the form owner/repo.",
                details={"repository": repository},
            )
        repository = f"https://github.com/{repository}"
    address = f"{repository.rstrip('/').removesuffix('.git')}/archive/{quote(ref, safe='/')}.tar.gz"
    if not is_safe_transfer_url(address):
        raise TemplateError(
            f"The template repository {repository} must be at an https address.",
            details={"repository": repository},
        )
    return address


def _fetch(address: str, target: Path) -> None:
    import httpx

    size = 0
    try:
        with (
            httpx.stream("GET", address, follow_redirects=True, timeout=_TIMEOUT_S) as answer,
            target.open("wb") as file,
        ):
            answer.raise_for_status()
            for block in answer.iter_bytes():
                size += len(block)
                if size > _MAX_BYTES:
                    raise TemplateError(
                        f"The template archive {address} has more than {_MAX_BYTES >> 20} MB."
                    )
                file.write(block)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TemplateError(
            f"We are unable to fetch starter templates from {address}: {error}",
            code="NETWORK",
            details={"url": address},
        ) from error


def _unpacked(archive: Path, target: Path, address: str) -> Path:
    """The one folder of the archive."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = tar.getmembers()
            unsafe = [member.name for member in members if _leads_out(member.name)]
            if unsafe:
                raise TemplateError(f"The template archive {address} has an unsafe entry: {unsafe[0]}")
            roots = {
                PurePosixPath(member.name).parts[0] for member in members if PurePosixPath(member.name).parts
            }
            if len(roots) != 1:
                raise TemplateError(f"The template archive {address} must hold one folder, not {len(roots)}.")
            tar.extractall(target, filter="data")
    except tarfile.FilterError as error:
        raise TemplateError(f"The template archive {address} has an unsafe entry: {error}") from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise TemplateError(f"The template archive {address} is broken: {error}") from error
    root = target / roots.pop()
    if not root.is_dir():
        raise TemplateError(f"The template archive {address} must hold one folder.")
    return root


def _leads_out(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts
