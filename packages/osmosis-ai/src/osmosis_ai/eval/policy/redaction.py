"""Keeping credentials out of error messages."""

from collections.abc import Iterable

_SHORTEST = 8


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the secrets. Values under eight characters are left alone: they would garble ordinary words."""
    for secret in sorted((secret for secret in secrets if len(secret) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, "[REDACTED]")
    return text
