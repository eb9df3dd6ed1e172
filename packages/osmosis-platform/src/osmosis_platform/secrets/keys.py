"""Master keys: they encrypt secrets and sign URLs. They live in one file outside the data folder.

The newest key encrypts and signs; older ones still decrypt and verify, until `rotate` has re-encrypted everything and the
administrator drops them. Each purpose uses its own key, derived with HKDF-SHA256 (RFC 5869).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from osmosis_platform.errors import CannotStart, PlatformError

KEY_BYTES = 32
NONCE_BYTES = 12


class SecretUnreadable(PlatformError):
    """A ciphertext that none of our keys opens, or that was moved to another row or changed."""

    code = "SECRET_UNREADABLE"


@dataclass(frozen=True, slots=True)
class MasterKey:
    """32 random bytes and the id by which ciphertexts name them."""

    id: str
    material: bytes
    created_at: str

    @classmethod
    def new(cls) -> MasterKey:
        """A fresh key."""
        return cls(
            f"k{secrets.token_hex(4)}",
            secrets.token_bytes(KEY_BYTES),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def __repr__(self) -> str:
        return f"MasterKey({self.id!r})"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted value: AES-256-GCM with a random 96-bit nonce."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


class KeyRing:
    """The keys of one deployment, newest last."""

    def __init__(self, path: Path, keys: list[MasterKey]) -> None:
        self.path = path
        self._keys = keys

    @classmethod
    def open(cls, path: Path) -> KeyRing:
        """Read the key file, or create it (mode 0600) with a first key. Raises CannotStart when it cannot be used."""
        if path.exists():
            return cls(path, _read(path))
        ring = cls(path, [MasterKey.new()])
        ring._save()
        return ring

    @property
    def current(self) -> MasterKey:
        """The key that encrypts and signs."""
        return self._keys[-1]

    @property
    def ids(self) -> list[str]:
        """Ids of all keys, newest last."""
        return [key.id for key in self._keys]

    def add_key(self) -> str:
        """Make a new current key and save it; returns its id."""
        self._keys.append(MasterKey.new())
        self._save()
        return self.current.id

    def drop_keys_before(self, key_id: str) -> list[str]:
        """Forget the keys older than `key_id` and save; returns the ids of those forgotten."""
        position = self.ids.index(key_id)
        dropped, self._keys = self._keys[:position], self._keys[position:]
        self._save()
        return [key.id for key in dropped]

    def seal(self, value: bytes, bound_to: bytes, purpose: str = "secrets") -> Sealed:
        """Encrypt; the result opens only with the same `bound_to` (associated data)."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher = AESGCM(_derive(self.current, purpose))
        return Sealed(self.current.id, nonce, cipher.encrypt(nonce, value, bound_to))

    def unseal(self, sealed: Sealed, bound_to: bytes, purpose: str = "secrets") -> bytes:
        """Decrypt; raises SecretUnreadable, never with any part of the value."""
        for key in self._keys:
            if key.id == sealed.key_id:
                try:
                    return AESGCM(_derive(key, purpose)).decrypt(sealed.nonce, sealed.ciphertext, bound_to)
                except InvalidTag as error:
                    raise SecretUnreadable(
                        "An encrypted value was changed or moved. Set it again."
                    ) from error
        raise SecretUnreadable(
            f"The key {sealed.key_id} that encrypted a value is not in {self.path}. Restore the key file, or set the value again."
        )

    def sign(self, purpose: str, message: bytes) -> str:
        """A signature that `verify` accepts for the same purpose and message; safe in URLs."""
        return f"{self.current.id}.{_signature(self.current, purpose, message)}"

    def verify(self, purpose: str, message: bytes, signature: str) -> bool:
        """Whether `signature` was made by `sign` with one of our keys."""
        key_id, _, value = signature.partition(".")
        for key in self._keys:
            if key.id == key_id:
                return hmac.compare_digest(_signature(key, purpose, message).encode(), value.encode())
        return False

    def _save(self) -> None:
        content = {
            "keys": [
                {"id": key.id, "key": base64.b64encode(key.material).decode(), "created_at": key.created_at}
                for key in self._keys
            ]
        }
        staging = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            staging.replace(self.path)
        except OSError as error:
            raise CannotStart(
                f"Cannot write the key file {self.path}: {error.strerror or error}. Choose another with OSMOSIS_KEY_FILE."
            ) from error


def _derive(key: MasterKey, purpose: str) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"osmosis:{purpose}".encode()).derive(key.material)


def _signature(key: MasterKey, purpose: str, message: bytes) -> str:
    digest = hmac.new(_derive(key, f"sign:{purpose}"), message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _read(path: Path) -> list[MasterKey]:
    try:
        if path.stat().st_mode & 0o077:
            raise CannotStart(
                f"The key file {path} can be read by others. Make it private with: chmod 600 {path}"
            )
        content: Any = json.loads(path.read_text("utf-8"))
        keys = [
            MasterKey(
                str(entry["id"]), base64.b64decode(entry["key"], validate=True), str(entry["created_at"])
            )
            for entry in content["keys"]
        ]
    except OSError as error:
        raise CannotStart(f"Cannot read the key file {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CannotStart(f"The key file {path} is damaged. Restore it from your backup.") from error
    if not keys or any(len(key.material) != KEY_BYTES for key in keys):
        raise CannotStart(f"The key file {path} holds no usable key. Restore it from your backup.")
    return keys
