"""Addresses of the platform: which one is meant, and which are trusted without encryption."""

import ipaddress
import os
from urllib.parse import urlsplit

from osmosis_ai.errors import OsmosisError

DEFAULT_PLATFORM_URL = "http://127.0.0.1:8400"
PLATFORM_VARIABLE = "OSMOSIS_PLATFORM_URL"
INFERENCE_VARIABLE = "OSMOSIS_INFERENCE_URL"
INSECURE_VARIABLE = "OSMOSIS_ALLOW_INSECURE_PLATFORM_URL"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def normalize_url(url: str) -> str:
    """The address in one spelling: lower-case scheme and host, no default port, no user, query or trailing slash.

    ``localhost:8400`` without a scheme means http on loopback and https elsewhere.

    Raises:
        OsmosisError: it is no http address (``VALIDATION``).
    """
    text = url.strip()
    try:
        if "://" not in text:
            host = urlsplit(f"//{text}").hostname or ""
            text = f"{'http' if is_loopback(host) else 'https'}://{text}"
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # an open bracket, or a port that is none
        parts, port = urlsplit(""), -1
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _DEFAULT_PORTS or not host or port == -1:
        raise OsmosisError(
            f"{url!r} is no address of a platform; use something like http://127.0.0.1:8400.",
            code="VALIDATION",
            details={"url": url},
        )
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port is None or port == _DEFAULT_PORTS[scheme] else f":{port}"
    return f"{scheme}://{shown_host}{shown_port}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_safe_transfer_url(url: str) -> bool:
    """Whether a file may be sent to or fetched from the address: https, or http on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def platform_url() -> str:
    """The platform to talk to: ``OSMOSIS_PLATFORM_URL``, else the one saved login, else the default on this machine.

    Raises:
        OsmosisError: the address is unusable, or plain http to another machine was not allowed (``VALIDATION``).
    """
    given = os.environ.get(PLATFORM_VARIABLE, "").strip()
    url = normalize_url(given) if given else (_saved_platform() or DEFAULT_PLATFORM_URL)
    parts = urlsplit(url)
    if (
        parts.scheme == "http"
        and not is_loopback(parts.hostname or "")
        and os.environ.get(INSECURE_VARIABLE) != "1"
    ):
        raise OsmosisError(
            f"{url} would send your token without encryption. Use https, or set {INSECURE_VARIABLE}=1 for a network you trust.",
            code="VALIDATION",
            details={"url": url},
        )
    return url


def inference_url() -> str:
    """The address shown in examples of model calls: ``OSMOSIS_INFERENCE_URL``, else the platform itself."""
    given = os.environ.get(INFERENCE_VARIABLE, "").strip()
    return normalize_url(given) if given else platform_url()


def _saved_platform() -> str | None:
    from osmosis_ai.platform.auth.store import saved_platforms

    saved = saved_platforms()
    return saved[0] if len(saved) == 1 else None
