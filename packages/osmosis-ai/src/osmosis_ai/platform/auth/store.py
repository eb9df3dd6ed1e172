"""Saved logins: one JSON file, readable by its owner only, one entry per platform address."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osmosis_ai.platform.auth import keyring_store
from osmosis_ai.platform.errors import CredentialsError
from osmosis_ai.platform.urls import DEFAULT_PLATFORM_URL

VERSION = 2
_PARSE_FAILED = "CREDENTIALS_PARSE_FAILED"
_VERSION_CHANGED = "CREDENTIALS_VERSION_CHANGED"
DAMAGED = frozenset({_PARSE_FAILED, _VERSION_CHANGED})
# Where older clients kept a token in the keyring: one for all platforms, or under the address of the user.
_OLD_KEYRING_ACCOUNT = "default"


@dataclass(frozen=True, slots=True)
class Login:
    """A saved login. ``token`` is never printed; ``expires_at`` has a time zone.

    With a ``keyring_account`` the token is in the keyring under that name, and not in the file.
    """

    platform_url: str
    token: str
    expires_at: datetime
    user_id: str
    email: str
    name: str | None = None
    token_id: str | None = None
    created_at: datetime | None = None
    keyring_account: str | None = None

    def __repr__(self) -> str:
        return f"Login(platform_url={self.platform_url!r}, email={self.email!r})"

    @property
    def expired(self) -> bool:
        """Whether the token is past its end."""
        return self.expires_at <= datetime.now(UTC)


def config_folder() -> Path:
    """``~/.config/osmosis``; caches lie below it too."""
    return Path.home() / ".config" / "osmosis"


def credentials_path() -> Path:
    """The file of saved logins."""
    return config_folder() / "credentials.json"


def saved_platforms() -> list[str]:
    """The addresses with a saved login; none when the file is missing or unreadable."""
    try:
        return list(_read())
    except CredentialsError:
        return []


def load_login(platform_url: str) -> Login | None:
    """The saved login of a platform, or None.

    Raises:
        CredentialsError: the file is damaged, or the keyring that has the token cannot be used.
    """
    entry = _read().get(platform_url)
    return None if entry is None else _parse(platform_url, entry)


def save_login(login: Login) -> Login | None:
    """Write the login in one step, keeping those of other platforms; returns the one it replaces, if that can be read.

    Raises:
        CredentialsError: the file is damaged or cannot be written, or the keyring cannot be used; what was saved before is
            still there.
    """
    with _locked():
        platforms = _read()
        old = _parse_if_sound(login.platform_url, platforms.get(login.platform_url))
        if login.keyring_account is not None:
            keyring_store.put(login.keyring_account, login.token)
        platforms[login.platform_url] = _entry(login)
        _write(platforms)
        if old is not None and old.keyring_account not in (None, login.keyring_account):
            keyring_store.forget(str(old.keyring_account))
    return old


def _parse_if_sound(platform_url: str, entry: dict[str, Any] | None) -> Login | None:
    try:
        return None if entry is None else _parse(platform_url, entry)
    except CredentialsError:
        return None


def _entry(login: Login) -> dict[str, Any]:
    where: dict[str, Any] = {"token_store": "file", "access_token": login.token}
    if login.keyring_account is not None:
        where = {"token_store": "keyring", "keyring_account": login.keyring_account}
    return {
        "version": VERSION,
        **where,
        "token_type": "Bearer",
        "expires_at": login.expires_at.isoformat(),
        "created_at": (login.created_at or datetime.now(UTC)).isoformat(),
        "user": {"id": login.user_id, "email": login.email, "name": login.name},
        "token_id": login.token_id,
        "platform_url": login.platform_url,
    }


def delete_login(platform_url: str) -> bool:
    """Remove the login of one platform; returns whether there was one.

    Raises:
        CredentialsError: the file is damaged or cannot be written.
    """
    with _locked():
        platforms = _read()
        if platforms.pop(platform_url, None) is None:
            return False
        if platforms:
            _write(platforms)
        else:
            _remove_file()
    return True


def set_aside_damaged_file() -> Path | None:
    """Rename a file that cannot be understood to ``credentials.json.bak[.N]`` so that a new login can be saved; None when it is sound.

    Raises:
        CredentialsError: it cannot be read at all.
    """
    try:
        _read()
    except CredentialsError as error:
        if error.code not in DAMAGED:
            raise
        path, number = credentials_path(), 0
        while (backup := path.with_name(f"{path.name}.bak{f'.{number}' if number else ''}")).exists():
            number += 1
        path.rename(backup)
        return backup
    return None


@contextmanager
def _locked() -> Iterator[None]:
    """One writer at a time, over all processes: a login must not undo another that is saved at the same moment."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    path = credentials_path().with_name(".credentials.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unchangeable(path.parent, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read() -> dict[str, Any]:
    path = credentials_path()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if _is_flat(document):
            return {DEFAULT_PLATFORM_URL: document}
        if _is_newer(document):
            raise CredentialsError(
                f"The file of saved logins is of a newer version of this program: {path}. Run 'osmosis upgrade', or "
                "'osmosis auth login' to start a new one; the old file is kept beside it.",
                code=_VERSION_CHANGED,
                details={"path": str(path)},
            )
        platforms = document["platforms"]
        if document["version"] != VERSION or not isinstance(platforms, dict):
            raise ValueError("unknown layout")
        return platforms
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CredentialsError(
            f"The file of saved logins cannot be read: {path}: {error.strerror}.", details={"path": str(path)}
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CredentialsError(
            f"The file of saved logins is damaged: {path} ({error}). Run 'osmosis auth login' to start a new one; the old "
            "file is kept beside it.",
            code=_PARSE_FAILED,
            details={"path": str(path)},
        ) from error


def _is_flat(document: Any) -> bool:
    """Whether the file is of a client that knew one platform only: the entry itself, for the default platform."""
    if not isinstance(document, dict) or "platforms" in document:
        return False
    return "access_token" in document or document.get("token_store") == "keyring"


def _is_newer(document: Any) -> bool:
    version = document.get("version") if isinstance(document, dict) else None
    return isinstance(version, int) and version > VERSION


def _remove_file() -> None:
    path = credentials_path()
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unchangeable(path, error) from error


def _unchangeable(path: Path, error: OSError) -> CredentialsError:
    return CredentialsError(
        f"The saved logins cannot be changed: {path}: {error.strerror}.", details={"path": str(path)}
    )


def _kept_in_keyring(entry: dict[str, Any]) -> str | None:
    """The name of the entry's token in the keyring; None when the token is in the file."""
    if entry.get("token_store") != "keyring":
        return None
    if entry.get("keyring_account"):
        return str(entry["keyring_account"])
    old = [_OLD_KEYRING_ACCOUNT, str(entry["user"]["email"])]
    return next((name for name in old if keyring_store.has(name)), old[0])


def _parse(platform_url: str, entry: dict[str, Any]) -> Login:
    try:
        user = entry["user"]
        kept = _kept_in_keyring(entry)
        expires_at = datetime.fromisoformat(entry["expires_at"])
        if expires_at.tzinfo is None:
            raise ValueError("expires_at has no time zone")
        return Login(
            platform_url=platform_url,
            token=entry["access_token"] if kept is None else keyring_store.get(kept),
            keyring_account=kept,
            expires_at=expires_at,
            user_id=user["id"],
            email=user["email"],
            name=user.get("name"),
            token_id=entry.get("token_id"),
            created_at=datetime.fromisoformat(entry["created_at"]) if entry.get("created_at") else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CredentialsError(
            f"The saved login for {platform_url} in {credentials_path()} is damaged ({error}). Run 'osmosis auth login'.",
            code=_PARSE_FAILED,
            details={"path": str(credentials_path()), "platform_url": platform_url},
        ) from error


def _write(platforms: dict[str, Any]) -> None:
    path = credentials_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.chmod(0o700)
        # The temporary file is created with mode 0600 and replaces the old one in a single step.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "platforms": platforms}, file, indent=2)
            file.write("\n")
        Path(temporary).replace(path)
    except OSError as error:
        raise _unchangeable(path, error) from error
