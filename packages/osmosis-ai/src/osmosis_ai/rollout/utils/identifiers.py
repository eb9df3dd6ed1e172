"""Ids that become folder names."""


def is_single_path_segment(name: str) -> bool:
    """Whether the text names exactly one entry of a folder: not empty, no separator, no NUL, not ``.`` or ``..``."""
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name and "\0" not in name


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
