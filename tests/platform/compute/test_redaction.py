"""Invariant 5, for texts: no secret value appears in what people read."""

from __future__ import annotations

import json

from osmosis_platform.compute.redaction import Redactor
from osmosis_platform.compute.run_log import level_of
from osmosis_platform.runs.wire import Events


def test_every_spelling_of_a_value_is_taken_out() -> None:
    value = 'p@ss "word"/ä'
    redact = Redactor({"A_KEY": value, "LONGER": value + "-and-more", "EMPTY": "", "SHORT": "ab"})
    text = f"{value} {json.dumps(value)} p%40ss%20%22word%22%2F%C3%A4 {value}-and-more ab"
    assert redact(text) == '[A_KEY] "[A_KEY]" [A_KEY] [LONGER] ab'


def test_lines_of_a_value_with_many_lines_are_taken_out() -> None:
    redact = Redactor({"CERT": "-----BEGIN-----\nabcdef\n-----END-----"})
    assert redact("x abcdef y") == "x [CERT] y"


def test_events_of_a_worker_are_redacted() -> None:
    events = [
        {"type": "log", "id": "1", "timestamp": "2026-11-01T00:00:00Z", "message": "key sesame1", "details": {"sesame1": ["sesame1"]}},
        {"type": "attempt", "row_index": 0, "run_index": 0, "rollout_id": "r", "status": "failed", "error_message": "no sesame1"},
        {"type": "failed", "reason": "bad sesame1", "error_type": "x"},
    ]  # fmt: skip
    redact = Redactor({"KEY": "sesame1"})
    redacted = [event.redacted(redact) for event in Events.model_validate({"events": events}).events]
    text = json.dumps([event.model_dump(mode="json") for event in redacted])
    assert "sesame1" not in text
    assert text.count("[KEY]") == 5


def test_levels_of_output_lines() -> None:
    assert level_of("2026-01-01 00:00:00 WARNING x: careful") == "warning"
    assert level_of("ERROR:root:bad") == "error"
    assert level_of("Traceback (most recent call last):") == "error"
    assert level_of("INFO: no ERRORS here") == "info"


def masked(redact: Redactor, content: bytes) -> bytes:
    pieces = redact.masked_file(content)
    assert pieces is not None
    return b"".join(pieces)


def test_files_without_secrets_stay_as_they_are() -> None:
    redact = Redactor({"KEY": "sesame-123"})
    assert redact.masked_file(b"nothing here") is None
    assert redact.masked_file(b"") is None
    assert Redactor({}).masked_file(b"sesame-123") is None


def test_text_files_name_the_secret() -> None:
    redact = Redactor({"KEY": "sesame/123", "OTHER": "sesame/123-longer", "UML": "größe"})
    text = "a sesame/123 b sesame%2F123 c sesame/123-longer größe {broken json"
    assert masked(redact, text.encode()).decode() == "a [KEY] b [KEY] c [OTHER] [UML] {broken json"


def test_json_stays_json() -> None:
    value = 'quote " and \\ back'
    redact = Redactor({"KEY": value, "DIGITS": "12345678"})
    document = {"a": [f"x {value}"], value: 1, "number": 12345678, "text": "12345678"}
    content = masked(redact, json.dumps(document).encode())
    assert json.loads(content) == {"a": ["x [KEY]"], "[KEY]": 1, "number": 12345678, "text": "[DIGITS]"}


def test_binary_files_keep_their_length_and_everything_else() -> None:
    redact = Redactor({"KEY": "sesame-123", "PIN": "4711"})
    content = b"\0\1sesame-123\0 4711 \xff" * 3
    assert masked(redact, content) == b"\0\1**********\0 4711 \xff" * 3
    assert redact.masked_file(b"\0 4711") is None, "four bytes in a binary file are chance"
