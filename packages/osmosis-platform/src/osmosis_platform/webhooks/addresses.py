"""Which addresses the platform may send to on somebody's behalf: none inside its own network.

A name is looked up anew for every try, and the connection goes to the very address that was checked, so that a name that changes
between look-up and connection leads nowhere else (OWASP: Server-Side Request Forgery Prevention Cheat Sheet).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from osmosis_platform.errors import InvalidInput

MAX_URL = 2000
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052: an IPv4 address in the last 32 bits


@dataclass(frozen=True, slots=True)
class Destination:
    """An address that was checked: where to connect (`ip`), and as whom (`host` in TLS and in the Host header)."""

    scheme: str
    host: str
    port: int
    ip: str
    target: str

    @property
    def url(self) -> str:
        """The address with the checked IP address in place of the name."""
        ip = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{self.scheme}://{ip}:{self.port}{self.target}"

    @property
    def host_header(self) -> str:
        """The name that the receiver knows itself by."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def check_url(url: str, *, anywhere: bool, what: str = "webhook URL") -> SplitResult:
    """The parts of an address; `what` it is stands in errors. Raises InvalidInput unless it is HTTPS on port 443; `anywhere` allows HTTP and any port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidInput(f"The {what} is no valid address.", field="url") from None
    printable = len(url) <= MAX_URL and url.isascii() and url.isprintable() and " " not in url
    if not printable or not parts.hostname or parts.username is not None or parts.fragment:
        raise InvalidInput(
            f"The {what} has a host, no user name, no spaces and no fragment, and at most {MAX_URL} characters.",
            field="url",
        )
    if anywhere and parts.scheme in ("http", "https"):
        return parts
    if parts.scheme != "https" or port not in (None, 443):
        raise InvalidInput(f"The {what} has to be HTTPS on port 443.", field="url")
    return parts


def resolve(url: str, *, anywhere: bool, what: str = "webhook URL") -> Destination:
    """Look the host up and check every address that it has. Raises InvalidInput for one that is not public, unless `anywhere`."""
    parts = check_url(url, anywhere=anywhere, what=what)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"The host {host} of the {what} cannot be found.", field="url") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not anywhere and not all(is_public(ip_address(address)) for address in addresses):
        raise InvalidInput(
            f"The host {host} of the {what} is inside a private network. It has to have a public address.",
            field="url",
        )
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return Destination(parts.scheme, host, port, addresses[0], target)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the public internet, also where it carries an IPv4 address inside."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast
