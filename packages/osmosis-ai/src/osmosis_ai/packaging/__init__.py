"""Workflow projects as wheels for containers. Needs the ``harbor`` extra, on first use."""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

if TYPE_CHECKING:
    from osmosis_ai.packaging.bundle import BundleInfo, build_bundle, inspect_bundle
    from osmosis_ai.packaging.errors import BundleError

__getattr__, __dir__ = lazy_facade(
    __name__,
    {
        "BundleError": "osmosis_ai.packaging.bundle",
        "BundleInfo": "osmosis_ai.packaging.bundle",
        "build_bundle": "osmosis_ai.packaging.bundle",
        "inspect_bundle": "osmosis_ai.packaging.bundle",
    },
    needs="harbor",
)

__all__ = ["BundleError", "BundleInfo", "build_bundle", "inspect_bundle"]
