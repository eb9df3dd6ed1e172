"""The folder of a local evaluation."""

from pathlib import Path

import pytest

from osmosis_ai.eval.local.folder import RunFolder, RunFolderError


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = RunFolder(tmp_path / "file", "fox")
    with (
        pytest.raises(RunFolderError, match=r"cannot be written to .*file: Not a directory\. .*--output"),
        folder.locked(),
    ):
        pass


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path, "fox"), RunFolder(tmp_path, "fox")
    with first.locked(), pytest.raises(RunFolderError, match="running already"), second.locked():
        pass
    with second.locked():
        pass
