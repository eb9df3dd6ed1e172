"""A folder is there whole or not at all, and a changed one is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from osmosis_trainer.errors import StateError
from osmosis_trainer.state.checkpoint import pack
from osmosis_trainer.state.folder import MANIFEST, atomic_folder, verify


async def write(target: Path, content: str, source: Path | None = None) -> None:
    async with atomic_folder(target) as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "a.txt").write_text(content)
        (draft / "b.txt").write_text(source.read_text() if source else "b")


async def test_a_folder_appears_with_a_manifest_and_can_be_replaced(tmp_path: Path) -> None:
    await write(tmp_path / "x", "one")
    await write(tmp_path / "x", "two")
    verify(tmp_path / "x")
    assert (tmp_path / "x/inner/a.txt").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


async def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    await write(tmp_path / "x", "one")
    with pytest.raises(FileNotFoundError):
        await write(tmp_path / "x", "two", source=tmp_path / "missing")
    verify(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


async def test_the_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".x.new").mkdir()
    (tmp_path / ".x.new" / "stale").write_text("")
    await write(tmp_path / "x", "one")
    verify(tmp_path / "x")
    assert not (tmp_path / "x" / "stale").exists()


@pytest.mark.parametrize("damage", ["gone", "longer", "same length", "no manifest", "empty manifest"])
async def test_every_damage_is_named(tmp_path: Path, damage: str) -> None:
    await write(tmp_path / "x", "one")
    victim = tmp_path / "x/inner/a.txt"
    name = "a.txt"
    if damage == "gone":
        victim.unlink()
    elif damage == "longer":
        victim.write_text("ones")
    elif damage == "same length":
        victim.write_text("onE")
    else:
        name = MANIFEST
        (tmp_path / "x" / MANIFEST).write_text("{}") if damage == "empty manifest" else (
            tmp_path / "x" / MANIFEST
        ).unlink()
    with pytest.raises(StateError, match=name):
        verify(tmp_path / "x")


async def test_the_tar_depends_on_names_and_content_alone(tmp_path: Path) -> None:
    await write(tmp_path / "x", "one")
    await write(tmp_path / "y", "one")
    (tmp_path / "y/b.txt").touch()
    assert pack(tmp_path / "x") == pack(tmp_path / "y")
    await write(tmp_path / "y", "two")
    assert pack(tmp_path / "x") != pack(tmp_path / "y")
