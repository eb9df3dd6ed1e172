"""Ids that become folder names."""

from pathlib import PurePosixPath


def is_single_path_segment(name: str) -> bool:
    """Whether the text names exactly one entry of a folder: not empty, no separator, no NUL, not ``.`` or ``..``."""
    if not name or name in {".", ".."} or any(character in name for character in "/\\\0"):
        return False
    return PurePosixPath(name).name == name


def ensure_single_path_segment(value: str, *, label: str = "id") -> str:
    """The value itself.

    Raises:
        ValueError: when it could reach outside its folder.
    """
    if not is_single_path_segment(value):
        raise ValueError(
            f"{label} must be a single path segment (no '/', '\\', NUL, '.' or '..', not empty), got {value!r}"
        )
    return value
