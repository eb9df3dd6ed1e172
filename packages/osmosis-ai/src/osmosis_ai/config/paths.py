"""Where configs and rollouts lie in a workspace directory."""

from pathlib import Path

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.names import rollout_name_problem

CONFIG_FOLDERS = {"eval": "configs/eval", "training": "configs/training", "benchmark": "configs/benchmark"}


def locate_config(path: str | Path, kind: str, workspace_dir: Path) -> Path:
    """The resolved path of a config file.

    A relative path starts at the top of the workspace. The file must resolve below its folder (symlinks followed) and end
    in ``.toml``; that is checked before existence, so a wrong place is named as such even when nothing is there.

    Raises:
        ConfigError: wrong place, wrong suffix or no such file.
    """
    folder = CONFIG_FOLDERS[kind]
    root = (workspace_dir / folder).resolve()
    candidate = Path(path).expanduser()
    resolved = (candidate if candidate.is_absolute() else workspace_dir / candidate).resolve()
    if not resolved.is_relative_to(root) or resolved == root:
        raise ConfigError(
            f"{kind.capitalize()} configs must live under `{folder}/`.\n"
            f"  Got:      {path}\n"
            f"  Expected: {folder}/<name>.toml (in {workspace_dir})",
            details={"path": str(path), "expected": f"{folder}/"},
        )
    if resolved.suffix != ".toml":
        raise ConfigError(
            f"{kind.capitalize()} config must be a .toml file under `{folder}/`, got: {path}",
            details={"path": str(path)},
        )
    if not resolved.is_file():
        raise ConfigError(
            f"Config file not found: {path} (looked for {resolved})", details={"path": str(resolved)}
        )
    return resolved


def locate_entrypoint(rollout: str, entrypoint: str, workspace_dir: Path) -> Path:
    """The resolved entrypoint file of a rollout.

    Raises:
        ConfigError: the rollout is no plain folder name, something points out of its folder, or the file is missing.
    """
    problem = rollout_name_problem(rollout)
    if problem is not None:
        raise ConfigError(f"[experiment].rollout: {problem}", details={"field": "experiment.rollout"})
    rollouts = (workspace_dir / "rollouts").resolve()
    folder = (rollouts / rollout).resolve()
    if not folder.is_relative_to(rollouts) or folder == rollouts:
        raise ConfigError(
            f"[experiment].rollout: {rollout!r} must resolve to a folder under rollouts/, got {folder}.",
            details={"field": "experiment.rollout"},
        )
    file = (folder / entrypoint).resolve()
    if not entrypoint.strip() or not file.is_relative_to(folder) or file == folder:
        raise ConfigError(
            f"[experiment].entrypoint: entrypoint must resolve under rollouts/<rollout>/, got {entrypoint!r}. Here the "
            f"entrypoint must resolve under rollouts/{rollout}/.",
            details={"field": "experiment.entrypoint"},
        )
    if not file.is_file() or file.suffix != ".py":
        raise ConfigError(
            f"Rollout preflight failed for `rollouts/{rollout}/{entrypoint}`:\n"
            f"  Entrypoint file not found, or not a .py file: {file}",
            details={"field": "experiment.entrypoint", "path": str(file)},
        )
    return file
