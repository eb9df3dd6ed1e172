"""The rollout's key does not survive in what a trial leaves."""

import json
import os
from pathlib import Path

import pytest

from osmosis_ai.rollout.backend.harbor import HarborBackend
from osmosis_ai.rollout.backend.harbor.backend import CredentialScrubError
from osmosis_ai.rollout.backend.harbor.credentials import _WHOLE_FILE_BYTES

KEY = "sk-0123456789"


def scrub(trials: Path, key: str | None = KEY) -> None:
    backend = HarborBackend.__new__(HarborBackend)
    backend.trials_dir = trials
    backend.scrub_trial_credentials("r1", key)


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "trial-r1" / "agent" / "deep"
    folder.mkdir(parents=True)
    return tmp_path / "trial-r1"


def test_every_file_is_cleaned_and_links_are_not_followed(trial_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text(KEY)
    (trial_dir / "config.json").write_text(f'{{"key": "{KEY}"}}')
    (trial_dir / "agent" / "deep" / "core").write_bytes(b"\0\xff" + KEY.encode() * 2 + b"\0")
    (trial_dir / "agent" / "plain").write_text("nothing")
    (trial_dir / "agent" / "link").symlink_to(outside)
    scrub(tmp_path)
    assert (trial_dir / "config.json").read_text() == '{"key": "[REDACTED]"}'
    assert (trial_dir / "agent" / "deep" / "core").read_bytes() == b"\0\xff[REDACTED][REDACTED]\0"
    assert (trial_dir / "agent" / "plain").read_text() == "nothing"
    assert outside.read_text() == KEY


def test_a_key_is_found_in_its_json_form(trial_dir: Path, tmp_path: Path) -> None:
    key = 'quote"d\\key'
    (trial_dir / "a.json").write_text(json.dumps({"key": key}))
    scrub(tmp_path, key)
    assert json.loads((trial_dir / "a.json").read_text()) == {"key": "[REDACTED]"}


def test_a_large_file_is_cleaned_across_its_pieces(trial_dir: Path, tmp_path: Path) -> None:
    path = trial_dir / "big"
    before = b"x" * (_WHOLE_FILE_BYTES - 5)
    path.write_bytes(before + KEY.encode() + b"y" * 100 + KEY.encode())
    scrub(tmp_path)
    assert path.read_bytes() == before + b"[REDACTED]" + b"y" * 100 + b"[REDACTED]"


def test_names_and_link_targets_are_cleaned(trial_dir: Path, tmp_path: Path) -> None:
    (trial_dir / KEY).mkdir()
    (trial_dir / KEY / "kept").write_text("text")
    (trial_dir / f"{KEY}.txt").write_text("gone")
    (trial_dir / "link").symlink_to(f"/nowhere/{KEY}")
    scrub(tmp_path)
    assert sorted(path.name for path in trial_dir.iterdir()) == ["[REDACTED]", "agent"]
    assert (trial_dir / "[REDACTED]" / "kept").read_text() == "text"


@pytest.mark.parametrize("method", ["read_bytes", "write_bytes"])
def test_what_cannot_be_read_or_rewritten_is_deleted(
    trial_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    (trial_dir / "stuck").write_text(KEY)
    original = getattr(Path, method)

    def refuse(self: Path, *args: object) -> object:
        if self.name == "stuck":
            raise PermissionError(13, "denied", str(self))
        return original(self, *args)

    monkeypatch.setattr(Path, method, refuse)
    scrub(tmp_path)
    assert not (trial_dir / "stuck").exists()


def test_a_folder_that_cannot_be_listed_is_an_error(
    trial_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.scandir

    def refuse(path: object = ".") -> object:
        if str(path).endswith("deep"):
            raise PermissionError(13, "denied", str(path))
        return original(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CredentialScrubError, match=r"credential may remain in .*deep"):
        scrub(tmp_path)


def test_what_can_be_neither_cleaned_nor_deleted_is_an_error(
    trial_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trial_dir / "stuck").write_text(KEY)

    def refuse(self: Path, *args: object, **named: object) -> object:
        raise PermissionError(13, "denied", str(self))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CredentialScrubError, match="credential may remain"):
        scrub(tmp_path)


@pytest.mark.parametrize("key", [None, "", "short"])
def test_short_keys_are_left_alone(trial_dir: Path, tmp_path: Path, key: str | None) -> None:
    (trial_dir / "text").write_text("short text")
    scrub(tmp_path, key)
    assert (trial_dir / "text").read_text() == "short text"


def test_a_trial_that_left_nothing_is_clean(tmp_path: Path) -> None:
    scrub(tmp_path / "nowhere")
