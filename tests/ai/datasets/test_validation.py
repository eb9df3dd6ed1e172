"""Every rule on every row, and no value ever changed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osmosis_ai.datasets import RowReader, validate_file
from osmosis_ai.datasets.indexing import index_file

ROW = {"system_prompt": "s", "user_prompt": "u", "ground_truth": "1"}


def write_jsonl(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path, tmp_path: Path) -> list[object]:
    indexed = index_file(path, tmp_path / "rows.parquet")
    assert indexed.report.errors == []
    reader = RowReader(tmp_path / "rows.parquet")
    return reader.read(range(len(reader)))


HARD_CELLS = [
    "007",
    "NA",
    "1.50",
    "2026-01-02",
    "1e400",
    "18446744073709551617",
    " padded ",
    'quote " comma ,',
    "two\nlines",
    "naïve 🙂",
    "",
    "true",
]


@pytest.mark.parametrize("extension", ["jsonl", "csv", "parquet"])
def test_every_cell_arrives_as_uploaded(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"cells.{extension}"
    rows = [{"system_prompt": "s", "user_prompt": cell or "u", "ground_truth": cell} for cell in HARD_CELLS]
    if extension == "jsonl":
        write_jsonl(path, rows)
    elif extension == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    assert [row.label for row in rows_of(path, tmp_path)] == HARD_CELLS


def test_numbers_in_text_columns_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text(
        "".join(
            f'{{"system_prompt":"s","user_prompt":"u","ground_truth":{n}}}\n'
            for n in ("1.50", "-0", "1e5", "12345678901234567890")
        )
    )
    assert [row.label for row in rows_of(path, tmp_path)] == ["1.50", "-0", "1e5", "12345678901234567890"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"system_prompt": "s", "user_prompt": NaN}', "Line 3: invalid JSON (NaN is not JSON)"),
        ('{"system_prompt": "a", "system_prompt": "b", "user_prompt": "u"}', "duplicate key 'system_prompt'"),
        (
            '{"system_prompt": "s", "user_prompt": ["u"]}',
            "Line 3, column user_prompt: expected text, got list",
        ),
        ('["s", "u"]', "Line 3: expected a JSON object, got list"),
        ('{"system_prompt": "s"', "Line 3, column"),
        ('{"system_prompt": "\\ud800", "user_prompt": "u"}', "surrogate"),
        ('{"system_prompt": "s"}', "Line 3: missing user_prompt"),
        ('{"system_prompt": "s", "user_prompt": "u", "metadata": {"a": {}}}', "empty nested object at $.a"),
        ('{"system_prompt": "s", "user_prompt": "u", "metadata": {"n": 9223372036854775808}}', "too large"),
        ('{"system_prompt": "s", "user_prompt": "u", "metadata": [1]}', "must be a JSON object, got list"),
        ('{"system_prompt": "s", "user_prompt": "u", "metadata": "{no"}', "not valid JSON"),
    ],
)
def test_a_bad_row_in_the_middle_is_told_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    good = json.dumps(ROW)
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join([good, good, line, *([good] * 300)]) + "\n")
    report = validate_file(path)
    assert len(report.errors) == 1
    assert message in report.errors[0]


def test_metadata_types_are_the_same_in_every_row(tmp_path: Path) -> None:
    rows = [{**ROW, "metadata": {"tag": "x"}}] * 200 + [{**ROW, "metadata": {"tag": 3}}]
    report = validate_file(write_jsonl(tmp_path / "m.jsonl", list(rows)))
    assert report.errors == [
        "Line 201: metadata value type at $.tag is inconsistent across rows (str vs number)"
    ]


def test_metadata_object_reaches_the_row(tmp_path: Path) -> None:
    rows = [{**ROW, "metadata": {"n": 1.5, "big": 2**62, "tags": ["a"]}}, {**ROW, "metadata": {}}, ROW, ROW]
    read = rows_of(write_jsonl(tmp_path / "m.jsonl", list(rows)), tmp_path)
    assert [row.metadata for row in read] == [{"n": 1.5, "big": 2**62, "tags": ["a"]}, None, None, None]


def test_ragged_csv_and_small_files(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("system_prompt,user_prompt\ns,u\ns,u,extra\n")
    assert validate_file(path).errors == [
        "Row 3 (line 3): expected 2 columns, got 3",
        "Dataset too small: 2 rows. At least 4 rows are needed.",
    ]


def test_columns_documented_or_any(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"user_prompt": "u", "label": "1"}] * 4)
    assert "Missing required columns: system_prompt" in validate_file(path).errors[0]
    assert validate_file(path, columns="any").valid


def test_encoding_bom_and_empty_files(tmp_path: Path) -> None:
    bom = tmp_path / "b.csv"
    bom.write_bytes(b"\xef\xbb\xbfsystem_prompt,user_prompt\n" + b"s,u\n" * 4)
    assert validate_file(bom).valid
    latin = tmp_path / "l.csv"
    latin.write_bytes(b"system_prompt,user_prompt\n" + b"s,\xe9\n" * 4)
    assert "File encoding error" in validate_file(latin).errors[0]
    (tmp_path / "e.jsonl").write_bytes(b"")
    assert validate_file(tmp_path / "e.jsonl").errors == ["File is empty."]
    (tmp_path / "x.txt").write_bytes(b"x")
    assert "Unsupported file type '.txt'" in validate_file(tmp_path / "x.txt").errors[0]
    (tmp_path / "p.parquet").write_bytes(b"not parquet")
    assert "Invalid parquet file" in validate_file(tmp_path / "p.parquet").errors[0]


def test_only_the_first_five_errors_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "five.jsonl"
    path.write_text("nope\n" * 9)
    report = validate_file(path)
    assert len(report.errors) == 1  # the columns cannot even be read
    path.write_text(json.dumps(ROW) + "\n" + "nope\n" * 9)
    report = validate_file(path)
    assert len(report.errors) == 6
    assert "showing first 5 errors of 9" in report.errors[-1]


def test_rows_are_read_by_index(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "i.jsonl", [{**ROW, "ground_truth": str(i)} for i in range(3000)])
    index_file(path, tmp_path / "rows.parquet")
    reader = RowReader(tmp_path / "rows.parquet")
    assert [row.label for row in reader.read([2999, 0, 1500, 0])] == ["2999", "0", "1500", "0"]
    with pytest.raises(IndexError, match="row 3000 is outside"):
        reader.read([3000])
