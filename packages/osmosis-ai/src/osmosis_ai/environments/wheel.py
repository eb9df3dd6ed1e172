"""The SDK as a wheel, packed from this very installation, for the environments of rollouts.

The protocol between a rollout and whoever runs it is the SDK's; a rollout that ran another version of it would not be the one
that was tested with the rest. Packing is deterministic: the same files give the same bytes, and so the same environments.
"""

import base64
import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

PACKAGE = "osmosis-ai"
_MODULE = "osmosis_ai"
_METADATA = ("METADATA", "entry_points.txt")
_WHEEL = b"Wheel-Version: 1.0\nGenerator: osmosis-ai\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True, slots=True)
class SdkWheel:
    """A wheel file of the SDK and the SHA-256 of its bytes."""

    path: Path
    sha256: str


def given_wheel(path: Path) -> SdkWheel:
    """A wheel file that exists. Raises OSError."""
    path = path.resolve()
    return SdkWheel(path, hashlib.sha256(path.read_bytes()).hexdigest())


def pack_installed(root: Path) -> SdkWheel:
    """The wheel of the installed SDK, below ``root`` in a folder named by its hash."""
    installed = distribution(PACKAGE)
    root = root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    name = f"osmosis_ai-{installed.version}-py3-none-any.whl"
    staging = root / f".{os.getpid()}-{name}"
    pack(installed, staging)
    digest = hashlib.sha256(staging.read_bytes()).hexdigest()
    target = root / digest[:16] / name
    target.parent.mkdir(exist_ok=True)
    staging.replace(target)
    return SdkWheel(target, digest)


def pack(installed: Distribution, target: Path) -> None:
    """Write the wheel of an installed distribution, editable or not."""
    info = f"osmosis_ai-{installed.version}.dist-info"
    entries = dict(sorted(sdk_files()))
    for name in _METADATA:
        text = installed.read_text(name)
        if text is not None:
            entries[f"{info}/{name}"] = text.encode()
    write_wheel(target, info, entries)


def write_wheel(target: Path, info: str, entries: Mapping[str, bytes]) -> None:
    """Write a pure Python wheel of ``entries`` (path to content, with METADATA below ``info``); the same give the same bytes."""
    complete = dict(entries)
    complete[f"{info}/WHEEL"] = _WHEEL
    record = "".join(
        f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in complete.items()
    )
    complete[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in complete.items():
            member = zipfile.ZipInfo(path)  # dated 1980, so that the bytes depend on the content alone
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)


def sdk_files() -> Iterator[tuple[str, bytes]]:
    """The files of the installed SDK by their path in a wheel."""
    import osmosis_ai

    folder = Path(str(osmosis_ai.__file__)).parent
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield f"{_MODULE}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
