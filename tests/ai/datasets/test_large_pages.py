"""Parquet files with pages that are too large to be held: read cell by cell, with the same outcome."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osmosis_ai.datasets import reading_parquet, validate_file
from osmosis_ai.datasets.large_pages import PageError, streams

FIELDS = [pa.field("system_prompt", pa.string()), pa.field("user_prompt", pa.string(), nullable=False)]
SCHEMA = pa.schema([*FIELDS, ("ground_truth", pa.string()), ("metadata", pa.struct([("n", pa.int64())]))])


@pytest.fixture
def every_page_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_parquet, "LARGE_PAGE", 0)


def some_rows(count: int, length: int) -> list[dict[str, object]]:
    chance = random.Random(count)
    return [
        {
            "system_prompt": chance.choice([None, "", "Be brief. " * 20]),
            "user_prompt": "".join(chance.choices("abcdefé \n", k=chance.randrange(1, length))),
            "ground_truth": chance.choice([None, "007", "yes"]),
            "metadata": chance.choice([None, {"n": number}]),
        }
        for number in range(count)
    ]


def read(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    report = validate_file(path, sink=lambda _, cells: found.append(dict(cells)))
    assert report.errors == []
    return found


@pytest.mark.usefixtures("every_page_is_large")
@pytest.mark.parametrize("memory", [0, 1024 * 1024])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_every_form_of_pages_is_read(
    tmp_path: Path, compression: str, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_parquet, "LARGE_PAGES_MEMORY", memory)
    rows = some_rows(70, 400)
    wanted = [
        {**row, "metadata": None if row["metadata"] is None else f'{{"n": {number}}}'}
        for number, row in enumerate(rows)
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    path = tmp_path / "pages.parquet"
    for version in ("1.0", "2.0"):
        for dictionary in (True, False):
            for page_size, batch, group in ((100, 7, 20), (10**6, 1024, 1000)):
                pq.write_table(
                    table,
                    path,
                    compression=compression,
                    data_page_version=version,
                    use_dictionary=dictionary,
                    data_page_size=page_size,
                    dictionary_pagesize_limit=page_size,
                    write_batch_size=batch,
                    row_group_size=group,
                )
                assert read(path) == wanted, (version, dictionary, page_size)


@pytest.mark.usefixtures("every_page_is_large")
def test_long_cells_of_many_snappy_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_parquet, "LARGE_PAGES_MEMORY", 0)
    words = ["policy ", "reward ", "rollout ", random.Random(1).randbytes(40_000).hex()]
    cells = ["".join(random.Random(n).choices(words, k=60)) for n in range(8)]
    table = pa.table({"system_prompt": [""] * 8, "user_prompt": cells})
    pq.write_table(table, tmp_path / "long.parquet", use_dictionary=False)
    assert [row["user_prompt"] for row in read(tmp_path / "long.parquet")] == cells


@pytest.mark.usefixtures("every_page_is_large")
def test_cells_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.parquet"
    broken = pa.Array.from_buffers(pa.string(), 4, pa.array([b"a", b"b", b"\xff", b"d"]).buffers())
    pq.write_table(pa.table({"system_prompt": ["s"] * 4, "user_prompt": broken}), path)
    assert validate_file(path).errors == [
        "Row 3, column user_prompt: not UTF-8 at byte 1 (invalid start byte)"
    ]
    limit = 16 * 1024 * 1024
    cells = ["u", "x" * limit, "u", "x" * (limit + 1)]
    table = pa.table({"system_prompt": ["s"] * 4, "user_prompt": cells})
    for dictionary in (True, False):
        pq.write_table(table, path, use_dictionary=dictionary)
        assert validate_file(path).errors == [
            f"Row 4, column user_prompt: a cell may have at most {limit} bytes, this one has {limit + 1}"
        ]


@pytest.mark.usefixtures("every_page_is_large")
def test_damaged_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    path, chance = tmp_path / "damaged.parquet", random.Random(7)
    for compression in ("none", "snappy", "zstd"):
        for version in ("1.0", "2.0"):
            table = pa.Table.from_pylist(some_rows(20, 200), schema=SCHEMA)
            pq.write_table(table, path, compression=compression, data_page_version=version)
            good = path.read_bytes()
            for _ in range(40):
                bad = bytearray(good)
                bad[chance.randrange(4, len(bad) - 8)] = chance.randrange(256)
                path.write_bytes(bad)
                assert all("\n" not in error for error in validate_file(path).errors)
            path.write_bytes(good[: len(good) // 2])
            assert validate_file(path).errors[0].startswith("Invalid parquet file: ")


def test_pages_that_cannot_be_divided_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_parquet, "LARGE_PAGE", 100)
    monkeypatch.setattr(reading_parquet, "LARGEST_PAGES", 1000)
    kind = pa.struct([("text", pa.string())])
    table = pa.table(
        {
            "system_prompt": ["s"] * 4,
            "user_prompt": ["u"] * 4,
            "metadata": pa.array([{"text": f"{n}" * 999} for n in range(4)], kind),
        }
    )
    pq.write_table(table, tmp_path / "nested.parquet")
    (error,) = validate_file(tmp_path / "nested.parquet").errors
    assert error.startswith("Invalid parquet file: column metadata.text: a page has 40")
    assert "Write the file with smaller pages" in error


_ENCRYPTED = """
import base64, sys
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.parquet.encryption as pe
from osmosis_ai.datasets import validate_file

class Keys(pe.KmsClient):
    def __init__(self, config):
        pe.KmsClient.__init__(self)
    def wrap_key(self, key, name):
        return base64.b64encode(key)

path, plain = sys.argv[1], sys.argv[2] == "plain"
table = pa.table({"system_prompt": ["a"] * 5, "user_prompt": ["b"] * 5})
how = pe.EncryptionConfiguration(
    footer_key="f", column_keys={"c": ["user_prompt"]}, plaintext_footer=plain, double_wrapping=False
)
properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), how)
with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
    writer.write_table(table)
print(validate_file(path).errors)
"""


@pytest.mark.parametrize("footer", ["plain", "encrypted"])
def test_an_encrypted_file_is_refused(tmp_path: Path, footer: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENCRYPTED, str(tmp_path / "secret.parquet"), footer],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Invalid parquet file: " in done.stdout
    assert "decrypt" in done.stdout


_MEASURE = """
import sys
from osmosis_ai.datasets import validate_file
report = validate_file(sys.argv[1])
assert report.errors == [], report.errors
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_memory_stays_below_256_mb(tmp_path: Path) -> None:
    text = random.Random(3).randbytes(60_000).hex()
    cells = [text[n : n + 100_000] for n in range(1024)]
    table = pa.table({"system_prompt": [""] * 1024, "user_prompt": cells})
    pq.write_table(table, tmp_path / "long.parquet")
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / "long.parquet")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 244


def test_snappy_of_a_writer_without_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        streams, "_SNAPPY_BLOCKS", 64
    )  # what is repeated further back is of another block now
    text = bytes(range(256)) * 40
    stored = pa.compress(text, codec="snappy", asbytes=True)
    (tmp_path / "page").write_bytes(b"before" + stored + b"behind")
    with (tmp_path / "page").open("rb") as file:
        assert streams.page_stream(file, 6, len(stored), "SNAPPY").read() == text
        with pytest.raises((OSError, PageError), match=r"(?i)snappy"):
            streams.page_stream(file, 6, len(stored) - 3, "SNAPPY").read()
