"""Tells the CLI when it is too old."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi.responses import JSONResponse
from packaging.version import InvalidVersion, Version
from starlette.datastructures import MutableHeaders

UPGRADE = "Run: osmosis upgrade"


@dataclass(frozen=True, slots=True)
class Signal:
    """What to tell one client: nothing, headers on a successful answer, or a refusal (426)."""

    headers: dict[str, str] = field(default_factory=dict)
    refusal: JSONResponse | None = None

    def add_headers(self, headers: MutableHeaders) -> None:
        """Add the two signalling headers, both or none."""
        for name, value in self.headers.items():
            headers[name] = value


CURRENT = Signal()


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """`minimum`: older clients are refused. `deprecated`: clients up to this version are warned. `latest`: older ones hear of it."""

    minimum: Version | None = None
    deprecated: Version | None = None
    latest: Version | None = None

    @classmethod
    def of(cls, minimum: str | None, deprecated: str | None, latest: str | None = None) -> VersionPolicy:
        """From settings; raises packaging's InvalidVersion."""
        return cls(*(Version(text) if text else None for text in (minimum, deprecated, latest)))

    def judge(self, client: str | None) -> Signal:
        """The signal for a client that says it is version `client`; clients that say nothing pass."""
        if not client:
            return CURRENT
        try:
            version = Version(client)
        except InvalidVersion:
            return CURRENT
        if self.minimum is not None and version < self.minimum:
            text = (
                f"Upgrade required: Osmosis CLI {version} is not supported by this platform, which needs {self.minimum} or newer. "
                f"{UPGRADE}"
            )
            return Signal(refusal=JSONResponse({"status": "unsupported", "message": text}, status_code=426))
        if self.deprecated is not None and version <= self.deprecated:
            text = f"Osmosis CLI {version} will stop working with this platform. {UPGRADE}"
            return _signal("deprecated", text)
        if self.latest is not None and version < self.latest:
            return _signal(
                "upgrade_available",
                f"Osmosis CLI {self.latest} is available; this is {version}. {UPGRADE}",
            )
        return CURRENT


def _signal(status: str, text: str) -> Signal:
    return Signal({"X-Osmosis-Version-Status": status, "X-Osmosis-Version-Message": text})
