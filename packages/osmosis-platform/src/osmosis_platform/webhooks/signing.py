"""Signatures of deliveries: Standard Webhooks 1.0, symmetric (https://github.com/standard-webhooks/standard-webhooks).

The receiver computes HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<body>` with the secret, compares it with the base64 in
`webhook-signature`, and refuses old timestamps, so that what somebody recorded cannot be sent again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
SECRET_BYTES = 32  # the specification: 24 to 64


def new_secret() -> str:
    """A fresh secret as receivers' libraries take it: the prefix, then base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one try. `timestamp` is in Unix seconds; the id is the same for every try, so that repeats can be told."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }
