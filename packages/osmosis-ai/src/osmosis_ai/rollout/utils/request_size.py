"""Reading request bodies of a bounded size."""

from typing import TYPE_CHECKING

from osmosis_ai.rollout.utils.strict_json import MAX_BODY_BYTES as MAX_BODY_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request


class BodyTooLargeError(ValueError):
    """The body has more bytes than are read; answer 413."""


async def read_body(request: "Request") -> bytes:
    """The whole body. Raises :class:`BodyTooLargeError` above 256 MiB."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError(f"the request body is larger than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)
