"""The bundle of a backend: which project's code goes into the containers."""

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from osmosis_ai.packaging import BundleInfo, build_bundle, inspect_bundle
from osmosis_ai.rollout.utils.imports import ensure_import_path


def prepare_bundle(
    *,
    workflow: Any = None,
    grader: Any = None,
    workflow_config: Any = None,
    grader_config: Any = None,
    code_dir: Path | None = None,
    bundle: Path | None = None,
) -> BundleInfo | None:
    """The given bundle, else one built from ``code_dir`` or the project around the workflow or grader; None without either.

    Raises:
        ValueError: when the bundle lacks the program of the workflow or the grader, or the project cannot be found.
    """
    if bundle is not None:
        info = inspect_bundle(bundle)
        for what, ref, script in (
            ("workflow", workflow, info.agent_script),
            ("grader", grader, info.grader_script),
        ):
            if ref is not None and script is None:
                raise ValueError(
                    f"the bundle {bundle} was built without a {what}, but the backend was given one"
                )
        return info
    if workflow is None and grader is None:
        return None
    wheel = build_bundle(
        code_dir if code_dir is not None else find_project(workflow if workflow is not None else grader),
        workflow=_path_or_none(workflow),
        grader=_path_or_none(grader),
        workflow_config=_path_or_none(workflow_config),
        grader_config=_path_or_none(grader_config),
    )
    return inspect_bundle(wheel)


def image_requirements(bundle: BundleInfo | None, *, patch: bool | None) -> list[str] | None:
    """What goes into the images of tasks: by default what a bundle needs, None for images that stay as they are.

    Raises:
        ValueError: when images are to be patched and there is no bundle.
    """
    if bundle is None:
        if patch:
            raise ValueError("patch_dockerfile_with_sdk=True requires a bundle: give a workflow or a grader")
        return None
    return None if patch is False else list(bundle.requirements)


def find_project(ref: Any) -> Path:
    """The nearest folder with a ``pyproject.toml`` around the module of a class or a ``module:Class`` text.

    Raises:
        ValueError: when there is none.
    """
    source = _source_file(ref)
    for folder in source.parents if source is not None else ():
        if (folder / "pyproject.toml").is_file():
            return folder
    raise ValueError(
        f"cannot find the project of {ref!r}: no pyproject.toml around its module; pass code_dir= or bundle="
    )


def _source_file(ref: Any) -> Path | None:
    if not isinstance(ref, str):
        return Path(inspect.getfile(ref)).resolve()
    module = ref.partition(":")[0]
    if module in sys.modules and sys.modules[module].__file__:
        return Path(str(sys.modules[module].__file__)).resolve()
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    # A namespace package has folders but no file.
    return next(
        (Path(folder).resolve() / "__init__.py" for folder in spec.submodule_search_locations or ()), None
    )


def _path_or_none(ref: Any) -> str | None:
    return None if ref is None else ensure_import_path(ref)
