"""A full disk is said, waited for, and leaves nothing half-done. The disk is a real one, of a megabyte."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from osmosis_trainer.collect.attempt import AttemptKey
from osmosis_trainer.collect.journal import Journal
from osmosis_trainer.state import disk
from osmosis_trainer.state.disk import DiskFullError
from osmosis_trainer.train import train

MakeRun = Callable[..., Any]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leaving: int = 0) -> None:
    """Use up all room but `leaving` bytes."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        os.truncate(file.fileno(), file.tell() - leaving)


@pytest.fixture
def run(make_run: MakeRun, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose work folder lies on the small disk; `room()` makes room again."""
    monkeypatch.setattr(disk, "TRY_EVERY_S", 0.01)
    made = make_run("rough")
    object.__setattr__(made, "work_dir", small_disk / "work")
    return made


def complaints(run: Any) -> list[str]:
    return [event["message"] for event in run.report._events.of("log") if "disk of" in event["message"]]


async def finishes_once_there_is_room(run: Any, small_disk: Path) -> None:
    working = asyncio.create_task(train(run))
    async with asyncio.timeout(300):
        while not (run.report._events.path.exists() and complaints(run)):
            await asyncio.sleep(0.01)
            if working.done():
                await working
    (small_disk / "filler").unlink()
    await asyncio.wait_for(working, 300)


@pytest.mark.parametrize("leaving", [0, 4096])
@pytest.mark.parametrize(
    ("place", "words"),
    [("save_state", "the state of step 2"), ("export_adapter", "the checkpoint of step 2")],
)
async def test_state_and_checkpoint_wait_for_room(
    run: Any, make_run: MakeRun, small_disk: Path, place: str, words: str, leaving: int
) -> None:
    calm = make_run("calm")
    await train(calm)
    real, calls = getattr(run.engine, place), []

    async def filled_up(folder: Path) -> None:
        calls.append(folder)
        # States are of the steps 0, 1, 2; checkpoints of step 2 first.
        if len(calls) == (3 if place == "save_state" else 1):
            fill(small_disk, leaving)
        await real(folder)
        (folder / "weights").write_bytes(bytes(20_000))

    setattr(run.engine, place, filled_up)
    await finishes_once_there_is_room(run, small_disk)
    [told] = complaints(run)
    assert words in told
    assert "the run waits up to 30 minutes for room" in told
    assert run.engine.adapter == calm.engine.adapter
    assert not list(run.work_dir.rglob(".*"))


async def test_the_journal_waits_for_room_and_no_attempt_counts_twice(
    run: Any, make_run: MakeRun, small_disk: Path
) -> None:
    calm = make_run("calm")
    await train(calm)
    finished, done = run.run_attempt.finished, []

    def filled_up(key: AttemptKey, rollout_id: str) -> Any:
        done.append(key)
        if len(done) == 30:
            fill(small_disk, leaving=4096)
        return finished(key, rollout_id)

    run.run_attempt.finished = filled_up
    await finishes_once_there_is_room(run, small_disk)
    assert "journal" in complaints(run)[0] or "evaluation" in complaints(run)[0]
    assert run.engine.adapter == calm.engine.adapter


async def test_without_room_the_run_ends_with_the_reason_and_goes_on_later(
    run: Any, make_run: MakeRun, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = make_run("calm")
    await train(calm)
    monkeypatch.setattr(disk, "WAIT_S", 0.0)
    real = run.engine.save_state

    async def filled_up(folder: Path) -> None:
        if folder.parent.name == ".step-2.new":
            fill(small_disk)
        await real(folder)

    run.engine.save_state = filled_up
    with pytest.raises(DiskFullError, match=r"the state of step 2 cannot be written: .* \(0\.0 MiB free\)"):
        await train(run)
    assert run.states.steps() == [0, 1]
    (small_disk / "filler").unlink()
    again = make_run("rough")
    object.__setattr__(again, "work_dir", small_disk / "work")
    await train(again)
    assert again.engine.adapter == calm.engine.adapter


async def test_an_attempt_that_does_not_fit_leaves_no_trace_in_the_journal(
    make_run: MakeRun, small_disk: Path
) -> None:
    agent = make_run().run_attempt
    keys = [AttemptKey("train", 1, 0, 5, index, 0) for index in range(2)]
    first, second = (agent.finished(key, f"rollout-{key.sample_index}") for key in keys)
    second = replace(second, error_message="long" * 5000)
    with Journal(small_disk, 1) as journal:
        journal.append(first)
        fill(small_disk, leaving=4096)  # room for a part of it
        before = journal.path.read_bytes()
        with pytest.raises(OSError, match="No space left"):
            journal.append(second)
        assert journal.path.read_bytes() == before
        assert list(journal.finished) == keys[:1]
        (small_disk / "filler").unlink()
        journal.append(second)
    with Journal(small_disk, 1) as journal:
        assert journal.finished == {keys[0]: first, keys[1]: second}


def test_the_words_of_other_libraries_are_understood() -> None:
    assert disk.is_full(
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    )
    assert not disk.is_full(RuntimeError("I/O error: Permission denied (os error 13)"))
    outer = ValueError("outer")
    outer.__cause__ = OSError(28, "No space left on device")
    assert disk.is_full(outer)
