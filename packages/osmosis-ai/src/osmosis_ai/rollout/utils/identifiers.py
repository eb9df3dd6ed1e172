"""Ids that become folder names."""


def is_single_path_segment(name: str) -> bool:
    """Whether the text names exactly one entry of a folder: not empty, no separator, no NUL, not ``.`` or ``..``.

    Text that has no UTF-8 form (lone surrogates) names nothing.
    """
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        return False
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name


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
