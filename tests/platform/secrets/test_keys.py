"""The key file and what its keys do."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from osmosis_platform.errors import CannotStart
from osmosis_platform.secrets.keys import KeyRing, Sealed, SecretUnreadable


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing.open(tmp_path / "keys.json")


def test_file_is_private_and_read_again(keys: KeyRing) -> None:
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    sealed = keys.seal(b"value", b"row 1")
    assert KeyRing.open(keys.path).unseal(sealed, b"row 1") == b"value"
    assert sorted(path.name for path in keys.path.parent.iterdir()) == ["keys.json"]


def test_value_opens_only_in_its_place(keys: KeyRing) -> None:
    sealed = keys.seal(b"value", b"row 1")
    changed = Sealed(sealed.key_id, sealed.nonce, sealed.ciphertext[:-1] + bytes([sealed.ciphertext[-1] ^ 1]))
    for broken, place, purpose in (
        (sealed, b"row 2", "secrets"),
        (sealed, b"row 1", "other"),
        (changed, b"row 1", "secrets"),
        (Sealed("gone", sealed.nonce, sealed.ciphertext), b"row 1", "secrets"),
    ):
        with pytest.raises(SecretUnreadable):
            keys.unseal(broken, place, purpose)
    assert keys.seal(b"value", b"row 1").ciphertext != sealed.ciphertext


def test_older_keys_still_open_and_verify_until_dropped(keys: KeyRing) -> None:
    sealed, signature = keys.seal(b"value", b""), keys.sign("urls", b"message")
    new = keys.add_key()
    assert keys.current.id == new
    assert keys.unseal(sealed, b"") == b"value"
    assert keys.verify("urls", b"message", signature)
    assert keys.seal(b"value", b"").key_id == new
    assert keys.drop_keys_before(new) == [sealed.key_id]
    assert KeyRing.open(keys.path).ids == [new]
    assert not keys.verify("urls", b"message", signature)
    with pytest.raises(SecretUnreadable):
        keys.unseal(sealed, b"")


def test_signatures(keys: KeyRing) -> None:
    signature = keys.sign("urls", b"message")
    assert keys.verify("urls", b"message", signature)
    for purpose, message, given in (
        ("urls", b"other", signature),
        ("cookies", b"message", signature),
        ("urls", b"message", signature[:-1]),
        ("urls", b"message", ""),
        ("urls", b"message", "é.é"),
    ):
        assert not keys.verify(purpose, message, given)


def test_material_is_not_in_representations(keys: KeyRing) -> None:
    material = json.loads(keys.path.read_text())["keys"][0]["key"]
    assert repr(keys.current) == f"MasterKey({keys.current.id!r})"
    assert material not in repr(keys)


@pytest.mark.parametrize(
    "content", ["", "{}", '{"keys": []}', '{"keys": [{"id": "a", "key": "AAAA", "created_at": "x"}]}']
)
def test_damaged_file_stops_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(CannotStart, match=r"keys\.json"):
        KeyRing.open(path)


def test_readable_file_stops_the_start(keys: KeyRing) -> None:
    keys.path.chmod(0o644)
    with pytest.raises(CannotStart, match="chmod 600"):
        KeyRing.open(keys.path)


def test_unwritable_place_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="OSMOSIS_KEY_FILE"):
        KeyRing.open(tmp_path / "file" / "keys.json")
