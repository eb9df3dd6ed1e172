"""Reading a JSON request body without trusting it: its size, its depth, its numbers, and what an error may repeat of it."""

import json
import math
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

MAX_BODY_BYTES = 256 * 2**20
# User code, the trajectory and the controller all walk these values, most of them recursively.
MAX_JSON_DEPTH = 128
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
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise _refusal("content_type", f"the content type must be application/json, not {content_type!r}")
    raw = await _read(request)
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except RecursionError:
        raise _too_deep() from None
    except _NotFiniteError:
        raise _not_finite(raw) from None
    except ValueError as error:
        raise _refusal("json_invalid", f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _refusal("dict_type", f"the body must be a JSON object, not {_kind(value)}")
    if _deeper_than(value, MAX_JSON_DEPTH):
        raise _too_deep()
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


async def _read(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise BadRequestError(413, f"the request body is larger than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


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


def _refusal(kind: str, message: str) -> BadRequestError:
    return BadRequestError(422, [{"type": kind, "loc": ["body"], "msg": message, "input": None}])


def _too_deep() -> BadRequestError:
    return _refusal("json_too_deep", f"the body is nested more than {MAX_JSON_DEPTH} levels deep")


def _not_finite(raw: bytes) -> BadRequestError:
    """The refusal of NaN or an infinity, at the place where the first one was found."""
    pending: list[tuple[tuple[Any, ...], Any]] = [((), json.loads(raw))]
    while pending:
        path, value = pending.pop()
        if isinstance(value, float) and not math.isfinite(value):
            problem = {"type": "finite_number", "loc": path, "msg": "Input should be a finite number"}
            return BadRequestError(422, problems_of([{**problem, "input": str(value)}]))
        children = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        pending.extend(((*path, key), child) for key, child in children)
    # Another key of the same name came after it.
    return _refusal("finite_number", "the body holds a number that is not finite")


class _NotFiniteError(ValueError):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFiniteError(name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError(text)
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
