"""What the inference endpoint takes and how it refuses, for the API's description: the shapes of OpenAI's clients."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What went wrong; `param` is the part of the request that is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorObject(BaseModel):
    """An error of the inference endpoint."""

    error: ErrorDetail


CHAT_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string", "description": "One of GET /v1/models."},
                        "messages": {"type": "array", "items": {"type": "object"}},
                        "tools": {"type": "array", "items": {"type": "object"}},
                        "stream": {"type": "boolean"},
                    },
                }
            }
        },
    }
}
