"""One process per data folder, and a private one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from osmosis_platform.context import Platform, open_platform
from osmosis_platform.db.session import Database
from osmosis_platform.errors import CannotStart
from osmosis_platform.folder import FolderLock
from osmosis_platform.jobs.models import Job
from osmosis_platform.settings import Settings


def test_second_process_is_told_who_has_the_folder(platform: Platform) -> None:
    with pytest.raises(CannotStart, match=rf"pid {os.getpid()}\b") as caught:
        open_platform(platform.settings)
    assert caught.value.code == "FOLDER_IN_USE"


def test_folder_is_free_after_close_and_after_death(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from osmosis_platform.folder import FolderLock; "
        "FolderLock.acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(CannotStart, match=str(child.pid)):
            FolderLock.acquire(tmp_path)
        child.kill()
    lock = FolderLock.acquire(tmp_path)
    lock.release()
    lock.release()
    FolderLock.acquire(tmp_path).release()


def test_folder_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="--data"):
        open_platform(Settings(data_dir=tmp_path / "file" / "data"))


def test_failed_start_frees_the_folder(settings: Settings) -> None:
    open_platform(settings).close()
    assert settings.key_file is not None
    good = settings.key_file.read_text()
    settings.key_file.write_text("broken")
    with pytest.raises(CannotStart):
        open_platform(settings)
    settings.key_file.write_text(good)
    open_platform(settings).close()


def test_keys_lie_beside_the_folder_by_default(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    open_platform(settings).close()
    assert settings.resolved_key_file == tmp_path / "data.keys.json"
    assert settings.resolved_key_file.exists()


def test_keys_in_the_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="OSMOSIS_KEY_FILE"):
        open_platform(Settings(data_dir=tmp_path / "data", key_file=tmp_path / "data" / "keys.json"))
    assert not (tmp_path / "data").exists()


def test_next_start_releases_jobs_and_commands_beside_it_do_not(platform: Platform) -> None:
    with platform.database.write() as session:
        job_id = platform.jobs.enqueue(session, "light", "work", {}).id
    assert platform.jobs.claim("light") is not None

    def status() -> str:
        with platform.database.read() as session:
            return session.get_one(Job, job_id).status

    half = platform.settings.data_dir / "blobs" / "incoming" / "half"
    half.write_bytes(b"x")
    open_platform(platform.settings, exclusive=False).close()
    assert status() == "running"
    assert half.exists()
    assert platform.lock is not None
    platform.lock.release()  # as the kernel does when the process dies
    again = open_platform(platform.settings)
    assert status() == "queued"
    assert not half.exists()
    again.close()


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "home"
    other.mkdir(mode=0o755)
    (other / "notes.txt").write_text("mine")
    with pytest.raises(CannotStart, match="holds other files"):
        open_platform(Settings(data_dir=other))
    assert [path.name for path in tmp_path.rglob("*")] == ["home", "notes.txt"]
    assert other.stat().st_mode & 0o777 == 0o755


def test_a_use_that_a_full_disk_cannot_note_stops_nobody(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: Database) -> None:
        raise OperationalError("UPDATE", {}, sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(Database, "write", full)
    platform.database.note(update(Job).values(attempts=1))
    assert "disk is full" in caplog.text
