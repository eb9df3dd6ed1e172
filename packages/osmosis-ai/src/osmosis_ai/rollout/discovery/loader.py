"""Importing a rollout entrypoint the way running it as a script would find its siblings."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import ModuleType

from osmosis_ai.errors import RolloutDiscoveryError


def resolve_entrypoint(rollout_dir: Path, entrypoint: str) -> Path:
    """The entrypoint file.

    Raises:
        RolloutDiscoveryError: ``INVALID_ENTRYPOINT`` when it is no relative ``.py`` path inside the folder,
            ``ROLLOUT_NOT_FOUND`` or ``ENTRYPOINT_NOT_FOUND`` when folder or file is not there.
    """
    details = {"rollout_dir": str(rollout_dir), "entrypoint": entrypoint}
    pure = PurePosixPath(entrypoint)
    if not entrypoint or pure.is_absolute() or pure.suffix != ".py" or ".." in pure.parts:
        raise RolloutDiscoveryError(
            f"the entrypoint must be a relative path of a .py file inside the rollout folder, got '{entrypoint}'",
            code="INVALID_ENTRYPOINT",
            details=details,
        )
    if not rollout_dir.is_dir():
        raise RolloutDiscoveryError(
            f"there is no rollout folder '{rollout_dir}'", code="ROLLOUT_NOT_FOUND", details=details
        )
    path = (rollout_dir / pure).resolve()
    if not path.is_relative_to(rollout_dir.resolve()):
        raise RolloutDiscoveryError(
            f"the entrypoint '{entrypoint}' leads out of the rollout folder through a link",
            code="INVALID_ENTRYPOINT",
            details=details,
        )
    if not path.is_file():
        raise RolloutDiscoveryError(
            f"Entrypoint file not found: '{entrypoint}' in '{rollout_dir}'",
            code="ENTRYPOINT_NOT_FOUND",
            details=details,
        )
    return path


@contextmanager
def imported_entrypoint(rollout_dir: Path, path: Path) -> Iterator[ModuleType]:
    """Execute the entrypoint under a private module name and keep it importable inside the ``with`` block.

    Its folder and the rollout folder come first on ``sys.path``, as when it runs as a script. Afterwards the modules of the
    rollout are forgotten, so that the next rollout's equally named siblings are its own.

    Raises:
        RolloutDiscoveryError: ``MISSING_DEPENDENCY`` or ``IMPORT_FAILED``.
    """
    root = rollout_dir.resolve()
    search_path, known = sys.path[:], set(sys.modules)
    sys.path[:0] = [str(path.parent)] if path.parent == root else [str(path.parent), str(root)]
    importlib.invalidate_caches()
    try:
        yield _execute(path, root)
    finally:
        sys.path[:] = search_path
        for name in set(sys.modules) - known:
            if _lies_below(sys.modules[name], root):
                del sys.modules[name]


def _execute(path: Path, root: Path) -> ModuleType:
    name = f"_osmosis_rollout_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RolloutDiscoveryError(f"'{path}' cannot be imported", code="IMPORT_FAILED")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise RolloutDiscoveryError(
            f"importing '{path.name}' needs the module '{error.name}', which is not installed here: {error}",
            code="MISSING_DEPENDENCY",
            details={"module": error.name},
        ) from error
    except (Exception, SystemExit) as error:
        raise RolloutDiscoveryError(
            f"importing '{path.name}' raised {type(error).__name__}: {_what(error)}{_where(error, path, root)}",
            code="IMPORT_FAILED",
            details={"exception": type(error).__name__},
        ) from error
    return module


def _lies_below(module: ModuleType, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    places = [file] if file else list(getattr(module, "__path__", []))  # a namespace package has no file
    # An environment inside the rollout folder holds libraries, some of which cannot be loaded twice.
    return any(
        Path(place).is_relative_to(root) and "site-packages" not in Path(place).parts for place in places
    )


def _what(error: BaseException) -> str:
    # The text of a syntax error repeats its place.
    return error.msg if isinstance(error, SyntaxError) and error.lineno else str(error)


def _where(error: BaseException, path: Path, root: Path) -> str:
    """The deepest line of the entrypoint itself, where the author can act."""
    if isinstance(error, SyntaxError) and error.lineno:
        file = Path(error.filename or "?")
        shown = file.relative_to(root) if file.is_relative_to(root) else file.name
        return f" ({shown}, line {error.lineno})"
    line = None
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return "" if line is None else f" ({path.name}, line {line})"
