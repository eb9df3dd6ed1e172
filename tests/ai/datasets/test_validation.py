"""Every rule on every row, and no value ever changed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osmosis_ai.datasets import RowReader, scan, validate_file
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
            'Line 3, column user_prompt: expected text, got list: ["u"]',
        ),
        ('["s", "u"]', "Line 3: expected a JSON object, got list"),
        (
            '{"system_prompt": "s"',
            "Line 3: invalid JSON (Expecting ',' delimiter at character 22:",
        ),
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
        "Line 201, column metadata: value type at $.tag is inconsistent across rows (str vs number): 3"
    ]


def test_metadata_object_reaches_the_row(tmp_path: Path) -> None:
    rows = [{**ROW, "metadata": {"n": 1.5, "big": 2**62, "tags": ["a"]}}, {**ROW, "metadata": {}}, ROW, ROW]
    read = rows_of(write_jsonl(tmp_path / "m.jsonl", list(rows)), tmp_path)
    assert [row.metadata for row in read] == [{"n": 1.5, "big": 2**62, "tags": ["a"]}, None, None, None]


def test_ragged_csv_and_small_files(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("system_prompt,user_prompt\ns,u\ns,u,extra\n")
    assert validate_file(path).errors == [
        "Row 3: expected 2 columns, got 3",
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
    row = '{"system_prompt": "s", "user_prompt": %s}\n' % ("9" * 6000)
    (tmp_path / "n.jsonl").write_text(row * 4)
    assert "a number of 6,000 digits is too large" in validate_file(tmp_path / "n.jsonl").errors[0]


def test_a_broken_parquet_file_has_a_reason_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"system_prompt": ["s"] * 4, "user_prompt": ["u"] * 4}), path)
    raw = bytearray(path.read_bytes())
    end = len(raw) - 8  # of the description of the file, whose length stands before the last four bytes
    raw[end - int.from_bytes(raw[end : end + 4], "little") : end] = b"\xff" * int.from_bytes(
        raw[end : end + 4], "little"
    )
    path.write_bytes(raw)
    (error,) = validate_file(path).errors
    assert error.startswith("Invalid parquet file: Couldn't deserialize thrift")
    assert "\n" not in error


def test_only_the_first_five_errors_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "five.jsonl"
    path.write_text("nope\n" * 9)
    report = validate_file(path)
    assert len(report.errors) == 6
    assert report.errors[4].startswith("Line 5: invalid JSON")
    assert report.errors[-1] == "... (showing first 5 errors); there are 9"
    assert [problem["line"] for problem in report.problems] == [1, 2, 3, 4, 5]


def test_rows_are_read_by_index(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "i.jsonl", [{**ROW, "ground_truth": str(i)} for i in range(3000)])
    index_file(path, tmp_path / "rows.parquet")
    reader = RowReader(tmp_path / "rows.parquet")
    assert [row.label for row in reader.read([2999, 0, 1500, 0])] == ["2999", "0", "1500", "0"]
    with pytest.raises(IndexError, match="row 3000 is outside"):
        reader.read([3000])


def test_places_in_csv_are_rows_and_lines_where_cells_hold_newlines(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    good = '"s\n\r\nmore",u,"{""a"": 1}"\r\n'
    path.write_bytes(("system_prompt,user_prompt,metadata\r\n" + good * 3 + "s,u,{}x\r\n").encode())
    report = validate_file(path)
    assert report.errors == [
        'Row 5, column metadata: not valid JSON (Extra data at character 3: "{}x"): "{}x" (line 11)'
    ]
    assert report.problems == [
        {
            "row": 5,
            "line": 11,
            "column": "metadata",
            "value": '"{}x"',
            "message": 'not valid JSON (Extra data at character 3: "{}x")',
        }
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "File is empty."),
        (b"\n\n", "File has no header row"),
        (b"a,b,a\n", "Duplicate column names in the header: a"),
        (
            b"system_prompt,prompt\n",
            'Missing required columns: user_prompt. Required: system_prompt, user_prompt. Found: "system_prompt", "prompt"',
        ),
        (b"system_prompt,user_prompt\n", "Dataset too small: 0 rows. At least 4 rows are needed."),
        (
            b'system_prompt,user_prompt\ns,"u"x\n',
            "CSV parse error near line 2: ',' expected after '\"'",
        ),
        (
            b'system_prompt,user_prompt\na,b\ns,"u\n\n',
            "CSV parse error near line 4: unexpected end of data; the quote opened in the row at line 3 is never closed",
        ),
        (
            b"system_prompt,user_prompt\ns,ab\xff\n",
            "File encoding error: line 2, byte 5: not UTF-8 (invalid start byte), near 's,ab\\\\xff\\n'",
        ),
    ],
)
def test_csv_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(content)
    assert validate_file(path).errors[0] == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "Dataset too small: 0 rows. At least 4 rows are needed."),
        (b"\xef\xbb\xbf[]\n", "Line 1: expected a JSON object, got list: []"),
        (b'\n\n{"user_prompt": "u"}\n', "Missing required columns: system_prompt."),
        (
            b'{"system_prompt": "s", "user_prompt": "\xff"}\n',
            "Line 1: invalid JSON (invalid UTF-8 at byte 40:",
        ),
        (b"[" * 100_000 + b"\n", "Line 1: invalid JSON ("),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "Line 1: invalid JSON (a number of 5,000 digits is too large"),
    ],
)
def test_jsonl_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    assert validate_file(path).errors[0].startswith(message)


def test_one_row_cannot_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "array.jsonl"
    row = json.dumps(ROW).encode()
    with path.open("wb") as file:
        file.write(
            (row + b"\n") * 2 + b"[" + b" " * (scan.MAX_ROW_BYTES * 2) + b"]\n" + b"x\n" + (row + b"\n") * 2
        )
    errors = validate_file(path).errors
    assert errors[0].startswith("Line 3: a row may have at most 16777216 bytes")
    assert errors[1].startswith("Line 4: invalid JSON")
    path = tmp_path / "quote.csv"
    path.write_bytes(
        b'system_prompt,user_prompt\ns,"u\n' + (b"s" * 4095 + b"\n") * (scan.MAX_ROW_BYTES // 4096)
    )
    assert "a row may have at most 16777216 bytes" in validate_file(path).errors[0]
    assert "is a quote left open?" in validate_file(path).errors[0]


def test_all_metadata_empty(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "m.jsonl", [{**ROW, "metadata": {}}] * 5)
    assert "all sampled metadata objects are empty" in validate_file(path).errors[0]


METADATA = [{"n": 1, "tags": [{"a": "x"}, None], "m": [("k", 2)]}, {"n": 2, "tags": [], "m": None}] * 2
PARQUET_METADATA = pa.struct(
    [
        ("n", pa.int64()),
        ("tags", pa.list_(pa.struct([("a", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.int8())),
    ]
)


def parquet(path: Path, **columns: pa.Array) -> Path:
    text = pa.array(["s"] * 4)
    pq.write_table(pa.table({"system_prompt": text, "user_prompt": text, **columns}), path)
    return path


def test_parquet_metadata_of_every_kind(tmp_path: Path) -> None:
    for number, array in enumerate(
        [
            pa.array(METADATA, PARQUET_METADATA),
            pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
            pa.nulls(4),
            pa.array(['{"a": 1}', "", None, " "]),
            pa.array(['{"a": 1}'] * 4).dictionary_encode(),
        ]
    ):
        read = rows_of(parquet(tmp_path / f"{number}.parquet", metadata=array), tmp_path)
        if number == 0:
            assert read[0].metadata == {"n": 1, "tags": [{"a": "x"}, None], "m": {"k": 2}}
        if number == 1:
            assert [row.metadata for row in read] == [{"a": 1}, None, None, {"b": 2}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"metadata": pa.array([1, 2, 3, 4])},
            "Invalid metadata column: must be a struct or JSON-object string",
        ),
        ({"ground_truth": pa.array([1.5] * 4)}, "Column ground_truth: expected strings, got double"),
        ({"label": pa.array([True] * 4)}, "Column label: expected strings, got bool"),
        (
            {"metadata": pa.array(['{"a": 1}', "[1]", None, None])},
            "Row 2, column metadata: must be a JSON object",
        ),
        (
            {"metadata": pa.array([[("a", 1), ("a", 2)]] + [None] * 3, pa.map_(pa.string(), pa.int64()))},
            "Row 1, column metadata: duplicate key",
        ),
        (
            {"metadata": pa.array([{"t": 5}] * 4, pa.struct([("t", pa.timestamp("s"))]))},
            "Row 1, column metadata: value at $.t cannot be written as JSON (datetime)",
        ),
        (
            {"label": pa.Array.from_buffers(pa.string(), 4, pa.array([b"a", b"b", b"\xff", b"d"]).buffers())},
            "Row 3, column label: not UTF-8 at byte 1",
        ),
    ],
)
def test_parquet_columns_that_are_refused(tmp_path: Path, columns: dict[str, pa.Array], message: str) -> None:
    assert validate_file(parquet(tmp_path / "p.parquet", **columns)).errors[0].startswith(message)


def test_parquet_without_rows_or_columns(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    pq.write_table(
        pa.table({"system_prompt": pa.array([], pa.string()), "user_prompt": pa.array([], pa.string())}), path
    )
    assert validate_file(path).errors == ["Parquet file has no rows"]
    pq.write_table(pa.table({}), path)
    assert validate_file(path).errors == ["Parquet file has no columns"]


@pytest.mark.parametrize("extension", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("convert", "says"),
    [
        (gzip.compress, "Perhaps the file is compressed with gzip; unpack it first."),
        (lambda data: data.decode().encode("utf-16"), "Perhaps the file is UTF-16 text; save it as UTF-8."),
        (
            lambda data: data.decode().encode("utf-16-be"),
            "Perhaps the file is UTF-16 text; save it as UTF-8.",
        ),
        (lambda data: b"PAR1" + data, "Perhaps the file is Parquet; give its name the ending .parquet."),
        (lambda data: bytes(len(data)), "Perhaps the file begins with NUL bytes; it is no text."),
    ],
)
def test_files_that_are_something_else_are_told_so(
    tmp_path: Path, extension: str, convert: Callable[[bytes], bytes], says: str
) -> None:
    text = (
        (json.dumps(ROW) + "\n") * 4 if extension == "jsonl" else "system_prompt,user_prompt\n" + "s,u\n" * 4
    )
    path = tmp_path / f"x.{extension}"
    path.write_bytes(convert(text.encode()))
    assert validate_file(path).errors[-1] == says
    path.write_text(text)
    assert validate_file(path).errors == []


def test_long_rows_go_into_small_row_groups(tmp_path: Path) -> None:
    rows = [{**ROW, "user_prompt": f"{i}" + "x" * 3_000_000} for i in range(8)]
    index_file(write_jsonl(tmp_path / "long.jsonl", list(rows)), tmp_path / "rows.parquet")
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 3
    reader = RowReader(tmp_path / "rows.parquet")
    assert reader.read([7])[0].messages[1]["content"] == rows[7]["user_prompt"]
