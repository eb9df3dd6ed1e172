"""What the API's description says of every route beyond its own answer: the refusals, all in one envelope."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Problem(BaseModel):
    """One of several things wrong with a request."""

    key: str
    message: str
    key_correction: str | None = None


class ErrorBody(BaseModel):
    """The envelope of every error."""

    model_config = ConfigDict(extra="allow")

    error: str = Field(description="What happened and what to do, for people.")
    message: str | None = Field(default=None, description="The same sentence.")
    code: str = Field(description="A stable word, for programs.")
    field: str | None = Field(default=None, description="The part of the request that is wrong.")
    issues: list[Problem] | None = None
    platform_url: str | None = None


class TooOld(BaseModel):
    """The answer to a command line that is too old."""

    status: Literal["unsupported"]
    message: str


_MEANINGS = {
    400: "The request says something that cannot be.",
    401: "No token, or one that is not valid.",
    403: "The workspace is not the caller's, or their role does not allow it.",
    404: "There is no such thing, or none that the caller may know of.",
    409: "The state of the thing does not allow it.",
    413: "The body is too large.",
    429: "Too many tries.",
    503: "A part of the platform is not there right now.",
    507: "The platform's disk is full.",
}


def refusals(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The answers other than success, with `model` as their body."""
    return {
        **{status: {"model": model, "description": text} for status, text in _MEANINGS.items()},
        426: {"model": TooOld, "description": "The command line is too old for this platform."},
        "default": {"model": model, "description": "Any other failure."},
    }
