"""Which optional extra a missing module belongs to."""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRA_MODULES: dict[str, frozenset[str]] = {
    "server": frozenset({"fastapi", "starlette", "uvicorn"}),
    "strands": frozenset({"strands", "openai"}),
    "openai-agents": frozenset({"agents", "openai"}),
    "harbor": frozenset({"harbor"}),
    "rubric": frozenset({"litellm"}),
    "parquet": frozenset({"pyarrow"}),
    "eval-run": frozenset({"fastapi", "starlette", "uvicorn", "pyarrow", "litellm", "uv"}),
}


class MissingExtraError(ModuleNotFoundError):
    """A module of an extra is not installed; the text says how to install it."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn a failed import of a module of the extra into an error that says how to install it.

    A missing module that does not belong to the extra is raised unchanged: it is another problem.

    Raises:
        MissingExtraError: with ``pip install "osmosis-ai[<extra>]"`` in its text and the missing top-level module as ``name``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA_MODULES[name]:
            raise
        raise MissingExtraError(
            f"The module '{missing}' is not installed; it comes with the extra '{name}': "
            f'pip install "osmosis-ai[{name}]"',
            name=missing,
        ) from error
