"""Row selection, the verdict journal and the reading of untrusted files."""

import json
import os
import subprocess
import sys

import pytest

from osmosis_ai.eval.journal import Verdict, VerdictJournal
from osmosis_ai.eval.selection import select_rows
from osmosis_ai.worker import rollout_files
from osmosis_ai.worker.rollout_files import read_artifacts, wait_for_trajectory


def test_a_limit_takes_the_first_rows():
    assert select_rows(10, limit=3, seed=1) == [0, 1, 2]
    assert select_rows(2, limit=3, seed=1) == [0, 1]


@pytest.mark.parametrize(("total", "count"), [(0, 0), (1, 1), (9, 1), (100, 10), (1234, 123)])
def test_without_a_limit_a_tenth_is_sampled(total, count):
    rows = select_rows(total, limit=None, seed=0)
    assert len(set(rows)) == count
    assert rows == sorted(rows) == select_rows(total, limit=None, seed=0)
    assert set(rows) <= set(range(total))


def test_the_seed_picks_the_rows():
    assert select_rows(1000, limit=None, seed=0) != select_rows(1000, limit=None, seed=1)


def verdict(row, run=0, reward=1.0):
    return Verdict(row, run, f"r{row}{run}", "success", reward, 5, 12.5, None, None, True)


async def test_the_journal_survives_a_torn_line(tmp_path):
    journal = VerdictJournal(tmp_path / "work" / "verdicts.jsonl")
    assert journal.read() == {}
    await journal.append(verdict(0))
    path = tmp_path / "work" / "verdicts.jsonl"
    path.write_bytes(path.read_bytes() + b'{"row_index": 1, "run_in')
    await journal.append(verdict(2))
    await journal.append(verdict(2, reward=0.0))
    assert VerdictJournal(path).read() == {(0, 0): verdict(0), (2, 0): verdict(2)}


def write_artifacts(root, files):
    for path, content in files.items():
        target = root / "r" / "artifacts" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def test_artifacts_are_regular_files_below_the_rollout(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("do not upload")
    root = tmp_path / "root"
    write_artifacts(
        root, {"b.txt": b"b", "a/c.bin": b"\0c", "manifest.json": b"{}", "a/manifest.json": b"[]"}
    )
    artifacts = root / "r" / "artifacts"
    (artifacts / "link").symlink_to(secret / "key")
    (artifacts / "folder").symlink_to(secret)
    os.mkfifo(artifacts / "pipe")
    assert dict(read_artifacts(root, "r")) == {"a/c.bin": b"\0c", "a/manifest.json": b"[]", "b.txt": b"b"}
    assert list(read_artifacts(root, "nobody")) == []


@pytest.mark.parametrize("linked", ["r", "r/artifacts"])
def test_a_linked_folder_is_not_followed(linked, tmp_path):
    (tmp_path / "secret" / "artifacts").mkdir(parents=True)
    (tmp_path / "secret" / "key").write_text("do not upload")
    root = tmp_path / "root"
    (root / linked).parent.mkdir(parents=True)
    (root / linked).symlink_to(tmp_path / "secret")
    assert list(read_artifacts(root, "r")) == []


def test_artifacts_have_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_files, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(rollout_files, "MAX_TOTAL_BYTES", 25)
    monkeypatch.setattr(rollout_files, "MAX_FILES", 4)
    big = {
        "0": b"x" * 11,
        "1": b"x" * 10,
        "2": b"x" * 10,
        "3": b"x" * 6,
        "4": b"x" * 5,
        "d/5": b"",
        "e/6": b"",
    }
    write_artifacts(tmp_path, big)
    assert [path for path, _ in read_artifacts(tmp_path, "r")] == ["1", "2", "4", "d/5"]


def test_folders_without_end_end_nothing(tmp_path, caplog):
    write_artifacts(tmp_path, {"z/kept.txt": b"kept"})
    here = os.open(tmp_path / "r" / "artifacts", os.O_RDONLY)
    for _ in range(2 * sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert dict(read_artifacts(tmp_path, "r")) == {"z/kept.txt": b"kept"}
    assert "more than 64 folders down" in caplog.text
    subprocess.run(["rm", "-rf", tmp_path / "r"], check=True)


async def test_a_trajectory_is_taken_when_it_is_whole_and_of_this_rollout(tmp_path):
    (tmp_path / "r").mkdir()
    file = tmp_path / "r" / "trajectory.json"
    assert await wait_for_trajectory(tmp_path, "r", wait_s=0) is None
    document = json.dumps({"session_id": "r", "extra": {"osmosis": {"rollout_id": "r"}}}).encode()
    file.write_bytes(document[:20])
    assert await wait_for_trajectory(tmp_path, "r", wait_s=0) is None
    file.write_bytes(document)
    assert await wait_for_trajectory(tmp_path, "r", wait_s=0) == document
    file.write_bytes(document.replace(b'"r"', b'"other"'))
    assert await wait_for_trajectory(tmp_path, "r", wait_s=0) is None
    file.unlink()
    (tmp_path / "outside.json").write_bytes(document)
    file.symlink_to(tmp_path / "outside.json")
    assert await wait_for_trajectory(tmp_path, "r", wait_s=0) is None


@pytest.mark.parametrize(
    ("document", "taken"),
    [
        ({"extra": {"osmosis": {"rollout_id": "r"}}, "session_id": "other"}, True),
        ({"extra": {"osmosis": {"rollout_id": "other"}}, "session_id": "r"}, False),
        ({"session_id": "r", "trajectory_id": "other/1"}, True),
        ({"session_id": "other"}, False),
        ({"trajectory_id": "r/1"}, True),
        ({"trajectory_id": "other/1"}, False),
        ({"trajectory_id": "other"}, True),
        ({}, True),
        ([], False),
    ],
)
async def test_whose_trajectory_a_document_is(document, taken, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "trajectory.json").write_text(json.dumps(document))
    assert (await wait_for_trajectory(tmp_path, "r", wait_s=0) is not None) is taken
