"""Path parameters with slashes in them."""

from __future__ import annotations

from fastapi import Request

from osmosis_platform.http.middleware import ENCODED_SLASH


async def restore_slashes(request: Request) -> None:
    """Put the slashes back that `keep_encoded_slashes` hid from routing.

    An application-wide dependency: it runs before path parameters are read.
    """
    parameters = request.scope["path_params"]
    for name, value in parameters.items():
        if isinstance(value, str) and ENCODED_SLASH in value:
            parameters[name] = value.replace(ENCODED_SLASH, "/")
