"""Importing a rollout entrypoint the way running it as a script would find its siblings."""

import hashlib
import importlib.util
import sys
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


def import_entrypoint(rollout_dir: Path, path: Path) -> ModuleType:
    """Execute the entrypoint under a private module name; a second call executes it again.

    Its folder and the rollout folder are put first on ``sys.path``, for the rest of the process.

    Raises:
        RolloutDiscoveryError: ``MISSING_DEPENDENCY`` or ``IMPORT_FAILED``.
    """
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    name = f"_osmosis_rollout_{digest}"
    for folder in (rollout_dir.resolve(), path.parent):
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RolloutDiscoveryError(f"'{path}' cannot be imported", code="IMPORT_FAILED")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        del sys.modules[name]
        raise RolloutDiscoveryError(
            f"importing '{path.name}' needs the module '{error.name}', which is not installed here: {error}",
            code="MISSING_DEPENDENCY",
            details={"module": error.name},
        ) from error
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RolloutDiscoveryError(
            f"importing '{path.name}' raised {type(error).__name__}: {error}{_where(error, path)}",
            code="IMPORT_FAILED",
            details={"exception": type(error).__name__},
        ) from error
    return module


def _where(error: BaseException, path: Path) -> str:
    """The deepest line of the entrypoint itself, where the author can act."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f" ({error.filename}, line {error.lineno})"
    line = None
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return "" if line is None else f" ({path.name}, line {line})"
