"""Request bodies as models, and what a refusal may repeat of them."""

import json
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from osmosis_ai.rollout.utils.request_size import BodyTooLargeError, read_body
from osmosis_ai.rollout.utils.strict_json import StrictJsonError, decode_strict

_MAX_QUOTED_CHARS = 200


class BadRequestError(Exception):
    """A request that is refused; ``response`` says why."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.response = error_response(status, detail)


def error_response(status: int, detail: Any, headers: dict[str, str] | None = None) -> Response:
    """``{"detail": ...}`` in plain ASCII: a detail may quote text that UTF-8 cannot carry."""
    return Response(json.dumps({"detail": detail}), status, headers, "application/json")


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in the body.

    Raises:
        BadRequestError: 413 above 256 MiB; 422 when it is no JSON object, holds NaN or an infinity, or is nested more than
            128 levels deep.
    """
    check_content_type(request.headers.get("content-type", ""))
    try:
        raw = await read_body(request)
    except BodyTooLargeError as error:
        raise BadRequestError(413, str(error)) from None
    return decode_object(raw)


def check_content_type(content_type: str) -> None:
    """Raises :class:`BadRequestError` (422) unless this says JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise _refusal("content_type", f"the content type must be application/json, not {kind!r}")


def decode_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``. Raises :class:`BadRequestError` (422), see :func:`read_json`."""
    try:
        value = decode_strict(raw)
    except StrictJsonError as error:
        raise _refusal(error.kind, str(error), error.path) from None
    if not isinstance(value, dict):
        raise _refusal("dict_type", f"the body must be a JSON object, not {_kind(value)}")
    return value


def validate[Model: BaseModel](model: type[Model], body: dict[str, Any]) -> Model:
    """The body as ``model``. Raises :class:`BadRequestError` (422) that names every wrong field."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise BadRequestError(
            422, problems_of(error.errors(include_url=False, include_context=False))
        ) from None


def problems_of(errors: Any, *, where: tuple[str, ...] = ("body",)) -> list[dict[str, Any]]:
    """Validation errors as the answer lists them. Keys and whole objects of the request are not repeated."""
    return [
        {
            "type": error["type"],
            "loc": [*where, *error["loc"]],
            "msg": error["msg"],
            "input": _quoted(error["loc"], error.get("input")),
        }
        for error in errors
    ]


def _quoted(loc: tuple[Any, ...], value: Any) -> Any:
    if loc and str(loc[-1]).endswith("api_key"):
        return "[redacted]"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _MAX_QUOTED_CHARS else f"{value[:_MAX_QUOTED_CHARS]}..."
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    return {str: "text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _refusal(kind: str, message: str, path: tuple[Any, ...] = ()) -> BadRequestError:
    return BadRequestError(422, problems_of([{"type": kind, "loc": path, "msg": message}]))
