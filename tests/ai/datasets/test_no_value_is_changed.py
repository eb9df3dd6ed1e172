"""Whatever the fast ways do, the answer is that of the standard library; whatever a cell holds, it arrives unchanged."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osmosis_ai.datasets import RowReader, exact_json, parts, validate_file
from osmosis_ai.datasets.indexing import index_file
from osmosis_ai.datasets.scan import Scan

EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NASTY = st.sampled_from(
    [
        "007",
        "NA",
        "1e400",
        "2026-01-02",
        "-0",
        "",
        " ",
        '":',
        " :",
        '\\":',
        "\\",
        '"',
        "a: b",
        "\ufeff",
        "\u2028",
        "nan",
    ]
)
NUMBER = st.sampled_from(
    ["0", "-0", "1.50", "1e5", "1e400", "9223372036854775807", "9223372036854775808", "-9223372036854775809"]
)
SPACE = st.sampled_from(["", "", "", " ", "\t", " \r"])


@st.composite
def strings(draw: st.DrawFn) -> str:
    """A JSON string, with or without escapes."""
    return json.dumps(draw(TEXT | NASTY), ensure_ascii=draw(st.booleans()))


@st.composite
def objects(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    """A JSON object whose keys may occur twice, in different spellings, with odd spaces."""
    keys = st.sampled_from(['"a"', '"\\u0061"', '"b"', '"a:b"', '"\\":"'])
    members = [
        f"{draw(SPACE)}{draw(keys)}{draw(SPACE)}:{draw(SPACE)}{draw(items)}"
        for _ in range(draw(st.integers(0, 3)))
    ]
    return "{" + ",".join(members) + draw(SPACE) + "}"


LEAVES = (
    strings()
    | NUMBER
    | st.sampled_from(["true", "null", "NaN", "-Infinity", '"\\ud800"', '"\\ud83d\\ude00"', "01"])
)
JSON = st.recursive(
    LEAVES, lambda inner: objects(inner) | st.lists(inner, max_size=3).map(lambda x: "[" + ",".join(x) + "]")
)


def outcome(parse: Any, raw: bytes) -> tuple[str, Any]:
    try:
        return "value", repr(parse(raw))
    except ValueError as error:
        return "refused", str(error)


@EXAMPLES
@given(
    JSON,
    st.none() | st.tuples(st.integers(0, 60), st.sampled_from([b"", b"\xff", b'"', b":", b"\x01", b"{"])),
)
def test_the_fast_parser_is_the_strict_one(text: str, damage: tuple[int, bytes] | None) -> None:
    raw = text.encode()
    if damage is not None:
        place, byte = damage
        raw = raw[:place] + byte + raw[place + 1 :]
    assert outcome(exact_json.parse, raw) == outcome(exact_json.parse_by_the_book, raw)


CELL = TEXT | NASTY


@EXAMPLES
@given(st.lists(st.tuples(CELL, CELL), min_size=4, max_size=6), st.sampled_from(["jsonl", "csv", "parquet"]))
def test_every_cell_arrives_byte_for_byte(tmp_path: Path, cells: list[tuple[str, str]], kind: str) -> None:
    rows = [{"system_prompt": "s" + a, "user_prompt": b, "ground_truth": a} for a, b in cells]
    path = tmp_path / f"cells.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)
    assert index_file(path, tmp_path / "rows.parquet").report.errors == []
    reader = RowReader(tmp_path / "rows.parquet")
    read = reader.read(range(len(reader)))
    assert [(row.messages[0]["content"], row.messages[1]["content"], row.label) for row in read] == [
        ("s" + a, b, a) for a, b in cells
    ]


VALUES = st.sampled_from(
    [1, 2.5, 2**62, 2**63, -(2**63), 1e300, "x", ":", "", True, None, [], ["a"], [1, None], [{"k": 1}]]
)
META = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    VALUES | st.dictionaries(st.sampled_from(["k", "l"]), VALUES, max_size=2),
    max_size=3,
)
ROW = st.fixed_dictionaries(
    {
        "system_prompt": st.sampled_from(["s", "", None]),
        "user_prompt": st.sampled_from(["u", "u: v", "", None]),
    },
    optional={
        "ground_truth": st.sampled_from(["1", 2, 2.5, True, None]),
        "metadata": META | META.map(json.dumps) | st.sampled_from(["", None, 3]),
        "more": VALUES,
    },
)
LINE = ROW.map(json.dumps) | st.sampled_from(
    ["", "nope", "[]", '{"system_prompt":"s","user_prompt":"u","user_prompt":"v"}']
)
FILES = st.lists(LINE, min_size=1, max_size=14)


def facts(path: Path, **options: Any) -> tuple[list[str], list[str], int | None, list[str]]:
    report = validate_file(path, **options)
    return report.errors, report.warnings, report.row_count, report.columns


@EXAMPLES
@given(FILES)
def test_known_rows_hide_no_problem(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "k.jsonl"
    path.write_text("\n".join(lines))
    for repeated in (lines, lines * 2):
        path.write_text("\n".join(repeated))
        rows: list[int] = []
        assert facts(path) == facts(path, sink=lambda index, _, rows=rows: rows.append(index))  # type: ignore[misc]


@EXAMPLES
@given(FILES, st.integers(1, 200))
def test_parts_are_the_whole(tmp_path: Path, lines: list[str], part_bytes: int) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(lines))
    whole, joined = Scan(), Scan()
    from osmosis_ai.datasets.reading_jsonl import scan_jsonl

    scan_jsonl(path, whole)
    parts.scan_in_parts(path, joined, processes=1, part_bytes=part_bytes)
    assert joined.problems.kept == whole.problems.kept
    assert (joined.problems.count, joined.rows, joined.broken, joined.columns) == (
        whole.problems.count,
        whole.rows,
        whole.broken,
        whole.columns,
    )
    assert joined.rules.metadata.root.to_json() == whole.rules.metadata.root.to_json()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 rows with problems in known places."""
    chance = random.Random(5)
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    with path.open("w") as file:
        for number in range(1, 20_001):
            metadata: dict[str, Any] = {"id": number, "tag": chance.choice(["a", "b"])}
            if number in (7_000, 19_999):
                metadata["tag"] = number
            if number == 12_345:
                metadata["late"] = {}
            row = {"system_prompt": "s", "user_prompt": "q" * chance.randint(1, 60), "metadata": metadata}
            file.write(("x" if number == 15_000 else "") + json.dumps(row) + "\n")
    return path


def test_processes_tell_the_same_lines(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [
        "Line 7000, column metadata: value type at $.tag is inconsistent across rows (str vs number): 7000",
        "Line 12345, column metadata: empty nested object at $.late",
        'Line 15000: invalid JSON (Expecting value at character 1: "x{\\"system_promp")',
        "Line 19999, column metadata: value type at $.tag is inconsistent across rows (str vs number): 19999",
    ]
    assert validate_file(large).errors == expected
    monkeypatch.setattr("osmosis_ai.datasets.validation.PARALLEL_FROM_BYTES", 1)
    monkeypatch.setattr(parts, "PART_BYTES", 100_000)
    done: list[int] = []
    report = validate_file(large, processes=3, progress=done.append)
    assert (report.errors, report.row_count) == (expected, 20_000)
    assert done == sorted(done)
    assert done[-1] == large.stat().st_size


def test_a_part_whose_process_dies_is_read_all_the_same(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_WORKER", (parts.sys.executable, "-c", "import sys; sys.stdin.readline()"))
    scan = Scan()
    parts.scan_in_parts(large, scan, processes=2, part_bytes=500_000)
    assert (scan.rows, scan.problems.count) == (20_000, 4)
