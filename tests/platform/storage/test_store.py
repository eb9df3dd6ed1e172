"""Blobs are complete or absent, and named by what they hold."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.errors import InvalidInput, NotFound
from osmosis_platform.storage.models import Upload
from osmosis_platform.storage.store import BlobStore


def test_a_blob_is_named_by_its_content_and_stored_once(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    first, second = store.put_bytes(b"abc"), store.put_bytes(b"abc")
    assert first == second
    assert first.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert store.read_bytes(first.sha256) == b"abc"
    assert list((tmp_path / "incoming").iterdir()) == []


def test_content_of_another_hash_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    wanted = hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(InvalidInput, match="hashes to"):
        store.put_bytes(b"abd", expected=wanted)
    assert not store.exists(wanted)
    assert not store.exists(hashlib.sha256(b"abd").hexdigest())
    with pytest.raises(NotFound):
        store.open(wanted)


def test_a_write_that_breaks_off_is_swept_at_the_next_start(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    (tmp_path / "incoming" / "half").write_bytes(b"x")

    def break_off() -> None:
        with store.writer() as writer:
            writer.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    BlobStore(tmp_path).clear_incoming()
    assert list((tmp_path / "incoming").iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "A" * 64, "", "0" * 63])
def test_names_that_are_no_hash_reach_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        BlobStore(tmp_path).path(name)


def test_a_signed_address_serves_exact_bytes_until_it_expires(
    platform: Platform, client: httpx.Client
) -> None:
    stored = platform.blobs.put_bytes(b'<script>alert("x")</script>' * 100)
    url = platform.urls.download_url(stored.sha256, "a/page.html").removeprefix(platform.urls.base_url)
    answer = client.get(url)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content) == stored.size
    assert "content-encoding" not in answer.headers
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "page.html" in answer.headers["content-disposition"]
    assert answer.headers["content-security-policy"].startswith("sandbox")
    other_end = url[:-1] + ("B" if url.endswith("A") else "A")
    for changed in (url.replace("page", "pig"), url.replace("expires=1", "expires=9"), other_end):
        assert client.get(changed).json()["code"] == "SIGNATURE_INVALID"
    expired = platform.urls.download_url(stored.sha256, "x", expires_in=-5).removeprefix(
        platform.urls.base_url
    )
    assert client.get(expired).status_code == 403
    assert client.get(expired).json()["code"] == "SIGNATURE_EXPIRED"


def test_a_part_of_another_size_is_refused(platform: Platform, town: Any, client: httpx.Client) -> None:
    with platform.database.write() as session:
        dataset = Dataset(
            workspace_id=town.acme.id, name="d", extension="jsonl", file_size=4, creator_id=town.ada.user.id
        )
        session.add(dataset)
        session.flush()
        session.add(
            Upload(id="u1", dataset_id=dataset.id, method="simple", size=4, part_size=4, total_parts=1)
        )
    url = platform.urls.upload_url("u1", 1, 4).removeprefix(platform.urls.base_url)
    for body in (b"123", b"12345"):
        assert client.put(url, content=body).status_code == 400
    answer = client.put(url, content=b"1234")
    assert answer.status_code == 200
    assert answer.headers["etag"].startswith('"')
    assert client.put(url.replace("size=4", "size=5"), content=b"12345").status_code == 403
    assert client.get(url).status_code in (404, 405)


def test_a_blob_is_served_in_ranges_with_the_hash_of_the_whole(
    platform: Platform, client: httpx.Client
) -> None:
    stored = platform.blobs.put_bytes(b"0123456789")
    url = platform.urls.download_url(stored.sha256, "x.txt").removeprefix(platform.urls.base_url)
    digest = f"sha-256=:{b64encode(hashlib.sha256(b'0123456789').digest()).decode()}:"
    whole, rest = client.get(url), client.get(url, headers={"Range": "bytes=4-"})
    assert (whole.status_code, whole.content) == (200, b"0123456789")
    assert (rest.status_code, rest.content) == (206, b"456789")
    for answer in (whole, rest):
        assert answer.headers["repr-digest"] == digest
        assert answer.headers["etag"] == f'"{stored.sha256}"'
