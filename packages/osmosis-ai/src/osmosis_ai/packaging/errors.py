"""What can be wrong with a project that becomes a bundle, or with a bundle."""

from osmosis_ai.errors import OsmosisError


class BundleError(OsmosisError, ValueError):
    """A bundle cannot be made or read."""

    default_code = "BUNDLE_FAILED"
