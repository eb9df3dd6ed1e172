"""Removing a rollout's key from the files that its trial left."""

import json
import os
import stat
import tempfile
from pathlib import Path

from osmosis_ai.rollout.backend.harbor.diagnostics import REDACTED

MIN_KEY_LENGTH = 8
# Larger files are read in pieces.
_WHOLE_FILE_BYTES = 16 * 2**20


class CredentialScrubError(RuntimeError):
    """The key may remain in the files of a trial, so nothing of them is kept."""


def scrub_tree(folder: Path, api_key: str | None) -> None:
    """Replace the key in every regular file below ``folder``; keys under 8 characters are left alone.

    Files that cannot be read or rewritten are deleted, as are entries with the key in their name or link target. Links are
    not followed.

    Raises:
        CredentialScrubError: when a folder cannot be listed or such an entry cannot be deleted.
    """
    if api_key is None or len(api_key) < MIN_KEY_LENGTH or not (folder.is_dir() or folder.is_symlink()):
        return
    if folder.is_symlink():
        raise CredentialScrubError(f"a credential may remain: {folder} is a link")
    # A key with quotes or backslashes looks different inside JSON.
    needles = {api_key.encode(), json.dumps(api_key)[1:-1].encode()}
    for parent, folders, files in os.walk(folder, topdown=False, onerror=_unverifiable):
        for name in (*files, *folders):
            _scrub_entry(Path(parent) / name, api_key, needles)


def _unverifiable(error: OSError) -> None:
    raise CredentialScrubError(
        f"a credential may remain in {error.filename}: {error.strerror or error}"
    ) from error


def _scrub_entry(path: Path, api_key: str, needles: set[bytes]) -> None:
    try:
        mode = path.lstat().st_mode
        names_key = api_key in path.name or (stat.S_ISLNK(mode) and api_key in os.readlink(path))
        if not names_key:
            if stat.S_ISREG(mode):
                _scrub_file(path, needles)
            return
        if stat.S_ISDIR(mode):
            path.rename(path.with_name(path.name.replace(api_key, REDACTED)))
            return
    except OSError:
        pass
    _delete(path)


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CredentialScrubError(
            f"a credential may remain in {path}, which can be neither cleaned nor deleted"
        ) from error


def _scrub_file(path: Path, needles: set[bytes]) -> None:
    if path.stat().st_size > _WHOLE_FILE_BYTES:
        _scrub_large(path, needles)
        return
    content = path.read_bytes()
    clean = _replace(content, needles)
    if clean != content:
        path.write_bytes(clean)


def _scrub_large(path: Path, needles: set[bytes]) -> None:
    overlap = max(map(len, needles)) - 1
    with path.open("rb") as source, tempfile.TemporaryFile(dir=path.parent) as target:
        changed, rest = False, b""
        while piece := source.read(_WHOLE_FILE_BYTES):
            known = rest + piece
            clean = _replace(known, needles)
            changed |= clean != known
            target.write(clean[:-overlap])
            rest = clean[-overlap:]
        if not changed:
            return
        target.write(rest)
        target.seek(0)
        with path.open("wb") as rewritten:
            while piece := target.read(_WHOLE_FILE_BYTES):
                rewritten.write(piece)


def _replace(content: bytes, needles: set[bytes]) -> bytes:
    for needle in needles:
        content = content.replace(needle, REDACTED.encode())
    return content
