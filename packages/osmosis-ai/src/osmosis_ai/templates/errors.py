"""What goes wrong when templates are written into a workspace."""

from typing import ClassVar

from osmosis_ai.errors import OsmosisError


class TemplateError(OsmosisError):
    """Files of a template cannot be found or written. ``code`` is ``NOT_FOUND``, ``CONFLICT``, ``NETWORK`` or ``VALIDATION``."""

    default_code: ClassVar[str] = "VALIDATION"
