"""Objects named by ``module:attr``."""

import importlib
import inspect
import sys
from typing import Any


def resolve_object(ref: Any) -> Any:
    """The object that a ``module:attr`` text names (``attr`` may be dotted); anything but text is returned as it is.

    Raises:
        ValueError: when the text has no colon.
        ModuleNotFoundError: when there is no such module.
        ImportError: when the module has no such attribute, or it is None.
    """
    if not isinstance(ref, str):
        return ref
    module_name, colon, attribute = ref.partition(":")
    if not colon or not module_name or not attribute:
        raise ValueError(f"cannot resolve {ref!r}: expected 'module:attr' format")
    value: Any = importlib.import_module(module_name)
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if value is None:
        raise ImportError(f"module '{module_name}' does not export '{attribute}'")
    return value


def to_import_path(obj: Any) -> str:
    """The ``module:attr`` text of a class, or of an object at the top of the module that defines its type.

    Raises:
        ValueError: when no such text leads back to the object.
    """
    if inspect.isclass(obj):
        if "<locals>" not in obj.__qualname__:
            return f"{obj.__module__}:{obj.__qualname__}"
    else:
        module_name = type(obj).__module__
        module = sys.modules.get(module_name)
        for name, value in list(vars(module).items()) if module else []:
            if value is obj:
                return f"{module_name}:{name}"
    raise ValueError(
        f"Cannot resolve import path of {obj!r}: define it at the top level of the module of its class, or pass 'module:attr'"
    )


def ensure_import_path(ref: Any) -> str:
    """The reference as ``module:attr`` text.

    Raises:
        ValueError: when the text has no colon, or the object cannot be named.
    """
    if isinstance(ref, str):
        if ":" not in ref:
            raise ValueError(f"cannot resolve {ref!r}: expected 'module:attr' format")
        return ref
    return to_import_path(ref)
