"""Files of texts to judge: one JSON object a line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.datasets.exact_json import parse


@dataclass(frozen=True, slots=True)
class RubricRecord:
    """One text and what is known about it. ``solution_str`` is None when the conversation has no text of the assistant."""

    solution_str: str | None
    ground_truth: str | None = None
    original_input: str | None = None
    metadata: dict[str, Any] | None = None
    record_id: str | None = None

    def label(self, index: int) -> str:
        """The record's own id, else ``record[<index>]``; ``index`` counts from 1."""
        return self.record_id or f"record[{index}]"


def load_rubric_dataset(path: str | Path) -> list[RubricRecord]:
    """The records of a JSONL file, in its order; blank lines are skipped.

    Raises:
        CLIError: the file cannot be read, a line is no JSON object with text to judge, or there is no record at all.
    """
    path = Path(path).expanduser()
    records = [
        _record(line, number, path)
        for number, line in enumerate(_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        if line.strip()
    ]
    if not records:
        raise CLIError(f"No JSON records found in {path}.", details={"path": str(path)})
    return records


def extract_assistant_content(messages: Sequence[Any]) -> str | None:
    """The last text of the assistant; text parts are joined by newlines. None when the assistant says nothing."""
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            text = _text(message.get("content"))
            if text is not None:
                return text
    return None


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else _part(part) for part in content]
        content = "\n".join(part for part in parts if part)
    return content if isinstance(content, str) and content.strip() else None


def _part(part: Any) -> str | None:
    if isinstance(part, Mapping) and part.get("type") in ("text", "output_text", None):
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def _bytes(path: Path) -> bytes:
    if path.is_dir():
        raise CLIError(f"Data path is a directory, not a JSONL file: {path}.", details={"path": str(path)})
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CLIError(f"Data path does not exist: {path}.", details={"path": str(path)}) from None
    except OSError as error:
        raise CLIError(
            f"Data path cannot be read: {path}: {error.strerror}.", details={"path": str(path)}
        ) from error


def _record(line: bytes, number: int, path: Path) -> RubricRecord:
    where = {"path": str(path), "line": number}
    try:
        fields = parse(line.strip())
    except (ValueError, RecursionError) as error:
        raise CLIError(f"Invalid JSON on line {number} of {path}: {error}", details=where) from None
    if not isinstance(fields, dict):
        raise CLIError(
            f"Expected JSON object on line {number} of {path}, got {type(fields).__name__}.", details=where
        )
    messages, text = fields.get("messages"), _typed(fields, "solution_str", str)
    if not (isinstance(messages, list) and messages):
        if text is None:
            raise CLIError(
                f"The record on line {number} of {path} must include 'messages' (a non-empty list) or 'solution_str' (text).",
                details=where,
            )
        messages = []
    return RubricRecord(
        extract_assistant_content(messages) or text,
        _typed(fields, "ground_truth", str),
        _typed(fields, "original_input", str),
        _typed(fields, "metadata", dict),
        _name(fields, "id") or _name(fields, "conversation_id"),
    )


def _typed[Value](fields: dict[str, Any], key: str, kind: type[Value]) -> Value | None:
    value = fields.get(key)
    return value if isinstance(value, kind) else None


def _name(fields: dict[str, Any], key: str) -> str | None:
    return (_typed(fields, key, str) or "").strip() or None
