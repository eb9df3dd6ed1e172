"""Signed, expiring URLs of the local store: method, path and every parameter are signed with the key ring."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from osmosis_platform.errors import Forbidden
from osmosis_platform.secrets.keys import KeyRing

DOWNLOAD_SECONDS = 900
UPLOAD_SECONDS = 24 * 3600
PURPOSE = "urls"


class UrlSigner:
    """Signs and checks. `base_url` is the platform's public address."""

    def __init__(self, keys: KeyRing, base_url: str) -> None:
        self._keys = keys
        self.base_url = base_url.rstrip("/")

    def download_url(self, sha256: str, name: str, *, expires_in: int = DOWNLOAD_SECONDS) -> str:
        """A GET address of a blob, offered under the file name `name`."""
        return self._url("GET", f"/blobs/{sha256}", {"name": name}, expires_in)

    def upload_url(self, upload_id: str, part: int, size: int, *, expires_in: int = UPLOAD_SECONDS) -> str:
        """A PUT address of one part (from 1) of exactly `size` bytes."""
        return self._url("PUT", f"/uploads/{upload_id}/{part}", {"size": str(size)}, expires_in)

    def _url(self, method: str, path: str, parameters: Mapping[str, str], expires_in: int) -> str:
        full = {**parameters, "expires": str(int(time.time()) + expires_in)}
        full["signature"] = self._keys.sign(PURPOSE, _message(method, path, full))
        return f"{self.base_url}{quote(path)}?{urlencode(full)}"

    def check(self, method: str, path: str, parameters: Mapping[str, str]) -> None:
        """Raise Forbidden (403) unless the address was signed by us, unchanged, and has not expired."""
        given = dict(parameters)
        signature = given.pop("signature", "")
        if not self._keys.verify(PURPOSE, _message(method, path, given), signature):
            raise Forbidden(
                "the address is not signed by this platform or was changed", code="SIGNATURE_INVALID"
            )
        if int(given["expires"]) < time.time():
            raise Forbidden("the address has expired: ask for a new one", code="SIGNATURE_EXPIRED")


def _message(method: str, path: str, parameters: Mapping[str, str]) -> bytes:
    return "\n".join([method, path, urlencode(sorted(parameters.items()))]).encode()
