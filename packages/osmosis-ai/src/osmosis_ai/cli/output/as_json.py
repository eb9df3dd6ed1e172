"""JSON mode: one object on one line."""

import json
from typing import Any

from osmosis_ai.cli.output.results import DetailResult, ListResult, OperationResult, Result, SectionedResult
from osmosis_ai.cli.output.visible import escaped_json

SCHEMA_VERSION = 1


def result_document(result: Result) -> dict[str, Any]:
    """The JSON object of a result."""
    head: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    match result:
        case ListResult():
            body = _page(result)
            return {**head, **body, **_without(result.extra, {*head, *body})}
        case SectionedResult():
            body = {section.key: _page(section.page) for section in result.sections}
            return {**head, **body, **_without(result.extra, {*head, *body})}
        case DetailResult():
            return {**head, "data": result.data}
        case OperationResult():
            body = {"status": result.status, "operation": result.operation}
            if result.resource is not None:
                body["resource"] = result.resource
            if result.message is not None:
                body["message"] = result.message
            if result.next_steps:
                body["next_steps_structured"] = result.next_steps
            return {**head, **body, **_without(result.extra, {*head, *body})}


def error_document(
    command: str, version: str, code: str, message: str, details: dict[str, Any]
) -> dict[str, Any]:
    """The JSON object of an error."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "cli_version": version,
        "error": {"code": code, "message": message, "details": details, "request_id": None},
    }


def warning_document(version: str, code: str, message: str) -> dict[str, Any]:
    """The JSON object of a warning."""
    return {
        "schema_version": SCHEMA_VERSION,
        "cli_version": version,
        "warning": {"code": code, "message": message},
    }


def to_line(document: dict[str, Any]) -> str:
    """The object as one line.

    Raises:
        ValueError, TypeError: it holds NaN, an infinity or something that is no JSON.
    """
    return escaped_json(json.dumps(document, ensure_ascii=False, allow_nan=False)) + "\n"


def _page(page: ListResult) -> dict[str, Any]:
    return {
        "items": page.items,
        "total_count": page.total_count,
        "has_more": page.has_more,
        "next_offset": page.next_offset,
    }


def _without(extra: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in taken}
