"""Packages whose public names are loaded on first use."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from osmosis_ai.extras import extra


def lazy_facade(
    module_name: str, exports: Mapping[str, str], *, needs: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The module-level ``__getattr__`` and ``__dir__`` of a facade.

    ``exports`` maps a public name to the module that defines it. The first access imports that module and keeps the object in
    the facade. ``needs`` names the extra that the leaf modules require; without it the access raises
    :class:`ModuleNotFoundError` saying what to install.
    """

    def load(name: str) -> Any:
        leaf = exports.get(name)
        if leaf is None:
            raise AttributeError(f"module '{module_name}' has no attribute '{name}'")
        if needs is None:
            value = getattr(importlib.import_module(leaf), name)
        else:
            with extra(needs):
                value = getattr(importlib.import_module(leaf), name)
        setattr(sys.modules[module_name], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module_name]), *exports})

    return load, names
