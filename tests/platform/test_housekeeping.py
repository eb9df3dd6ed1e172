"""Nothing stays that nobody can reach: bytes of deleted workspaces, replaced files, uploads, folders. And nothing else goes."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.housekeeping import GRACE, Housekeeping, remove_folders, sweep
from osmosis_platform.repositories.git import UNFINISHED
from osmosis_platform.repositories.service import create_repository
from osmosis_platform.runs.models import (
    EvalImport,
    EvalImportFile,
    Run,
    RunArtifact,
    RunAttempt,
    RunSampleArtifact,
)
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.storage.models import Blob, Upload
from osmosis_platform.workspaces.models import Workspace
from osmosis_platform.workspaces.removal import delete_workspace
from osmosis_platform.workspaces.service import create_workspace

LONG_AGO = time.time() - 3 * GRACE.total_seconds()
DIGEST = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def keep(platform: Platform) -> Callable[..., str]:
    """Store a blob, written long ago unless `fresh`; returns its name."""

    def call(content: bytes, *, fresh: bool = False) -> str:
        stored = platform.blobs.put_bytes(content)
        with platform.database.write() as session:
            record_blob(session, stored)
        if not fresh:
            os.utime(platform.blobs.path(stored.sha256), (LONG_AGO, LONG_AGO))
        return stored.sha256

    return call


def _run(workshop: Any, name: str, **more: Any) -> Run:
    facts = {"workspace_id": workshop.town.acme.id, "creator_id": workshop.town.ada.user.id, "kind": "eval"}
    return Run(**facts, name=name, rollout_name="echo", entrypoint="main.py", commit_sha=workshop.commit_sha,
               model_path="tiny/model", config={}, **more)  # fmt: skip


def _sent_to(client: httpx.Client, upload_id: str, platform: Platform, content: bytes) -> httpx.Response:
    url = platform.urls.upload_url(upload_id, 1, len(content))
    return client.put("/" + url.split("/", 3)[3], content=content)


def test_only_blobs_that_a_row_names_stay(platform: Platform, workshop: Any, keep: Any) -> None:
    named = {
        what: keep(what.encode()) for what in ("trajectory", "artifact", "file", "adapter", "source", "rows")
    }
    unnamed, fresh = keep(b"of nobody"), keep(b"just stored", fresh=True)
    with platform.database.write() as session:
        run = _run(workshop, "a", status="finished", dataset_id=workshop.dataset_id)
        session.add(run)
        session.flush()
        place = {"run_id": run.id, "row_index": 0, "run_index": 0}
        session.add_all(
            [
                RunAttempt(**place, rollout_id="r", status="success", trajectory_sha256=named["trajectory"]),
                RunArtifact(**place, path="a", size=1, sha256=named["artifact"]),
                RunSampleArtifact(
                    run_id=run.id, step=1, row_index=0, sample_index=0, path="a", size=1, sha256=named["file"]
                ),
                LoraModel(
                    workspace_id=run.workspace_id, name="m", base_model_id=workshop.base_model_id,
                    run_id=run.id, step=1, blob_sha256=named["adapter"],
                ),
            ]
        )  # fmt: skip
        dataset = session.get_one(Dataset, workshop.dataset_id)
        dataset.source_sha256, dataset.rows_sha256 = named["source"], named["rows"]
        dataset.deleted_at = utc_now() - 3 * GRACE  # replaced, but a run has used it and may be retried
    swept = sweep(platform)
    assert (swept.blobs, swept.bytes) == (1, len(b"of nobody"))
    assert not platform.blobs.exists(unnamed)
    assert all(platform.blobs.exists(sha256) for sha256 in (*named.values(), fresh))
    with platform.database.read() as session:
        assert session.get(Blob, unnamed) is None
        assert session.query(Blob).count() == len(named) + 1

    with platform.database.write() as session:
        owner = session.merge(workshop.town.ada.user)
        left = delete_workspace(session, session.get_one(Workspace, workshop.town.acme.id), "acme", by=owner)
    left.remove(platform)
    sweep(platform)
    assert not any(platform.blobs.exists(sha256) for sha256 in named.values())
    assert platform.blobs.exists(fresh)


def test_a_blob_that_is_stored_once_more_is_not_taken_away(platform: Platform, keep: Any) -> None:
    sha256 = keep(b"twice")
    before = time.time() - 60
    assert [blob.sha256 for blob in platform.blobs.older_than(before)] == [sha256]
    platform.blobs.put_bytes(b"twice")
    assert list(platform.blobs.older_than(before)) == []
    assert not platform.blobs.remove(sha256, before)
    assert platform.blobs.read_bytes(sha256) == b"twice"


def test_a_replaced_dataset_that_no_run_used_gives_its_room_back(
    platform: Platform, workshop: Any, keep: Any
) -> None:
    rows = keep(b"old rows")
    with platform.database.write() as session:
        dataset = session.get_one(Dataset, workshop.dataset_id)
        dataset.rows_sha256 = rows
        dataset.deleted_at = utc_now() - GRACE / 2
    sweep(platform)
    assert platform.blobs.exists(rows)
    sweep(platform, now=utc_now() + GRACE)
    assert not platform.blobs.exists(rows)


def test_of_two_uploads_that_replace_the_same_run_nothing_stays(
    platform: Platform, workshop: Any, client: httpx.Client
) -> None:
    with platform.database.write() as session:
        found = EvalImport(
            workspace_id=workshop.town.acme.id, creator_id=workshop.town.ada.user.id, local_run_id="1" * 32,
            manifest_digest=DIGEST, declaration={}, expires_at=utc_now() + timedelta(days=1),
        )  # fmt: skip
        session.add(found)
        session.flush()
        ours = EvalImportFile(
            import_id=found.id, path="logs.txt", size=4, sha256=DIGEST, upload_id="the-newer"
        )
        session.add(ours)
    assert _sent_to(client, "the-newer", platform, b"text").status_code == 200
    late = _sent_to(client, "the-older", platform, b"text")
    assert late.status_code == 404
    assert "begin a new one" in late.json()["error"]
    assert [path.name for path in platform.parts.folder.iterdir()] == ["the-newer"]
    # A part that was on its way when the other upload took over.
    older = platform.parts.folder / "the-older"
    older.mkdir()
    sweep(platform)
    assert older.exists(), "it may be the first part of an upload that has just begun"
    for folder in platform.parts.folder.iterdir():
        os.utime(folder, (LONG_AGO, LONG_AGO))
    assert sweep(platform).uploads == 1
    assert [path.name for path in platform.parts.folder.iterdir()] == ["the-newer"]
    with platform.database.write() as session:
        session.get_one(EvalImport, found.id).expires_at = utc_now() - timedelta(seconds=1)
    assert sweep(platform).uploads == 1
    with platform.database.read() as session:
        assert session.query(EvalImport).count() == session.query(EvalImportFile).count() == 0


def test_uploads_of_datasets_end_with_them(platform: Platform, workshop: Any, client: httpx.Client) -> None:
    def begin(status: str) -> str:
        with platform.database.write() as session:
            dataset = Dataset(
                workspace_id=workshop.town.acme.id, name=status, extension="jsonl", file_size=4,
                status=status, creator_id=workshop.town.ada.user.id,
            )  # fmt: skip
            session.add(dataset)
            session.flush()
            upload = Upload(dataset_id=dataset.id, method="simple", size=4, part_size=4, total_parts=1)
            session.add(upload)
            session.flush()
            return upload.id

    going, over = begin("uploading"), begin("cancelled")
    for upload_id in (going, over):
        assert _sent_to(client, upload_id, platform, b"text").status_code == 200
        os.utime(platform.parts.folder / upload_id, (LONG_AGO, LONG_AGO))
    assert sweep(platform).uploads == 1
    assert [path.name for path in platform.parts.folder.iterdir()] == [going]
    with platform.database.write() as session:
        session.get_one(Upload, over).status = "completed"
    again = _sent_to(client, over, platform, b"text")
    assert (again.status_code, again.headers["etag"]) == (200, f'"{hashlib.sha256(b"text").hexdigest()}"')
    assert [path.name for path in platform.parts.folder.iterdir()] == [going]


def test_folders_of_what_has_ended_are_removed_before_anything_starts(
    platform: Platform, workshop: Any
) -> None:
    data: Path = platform.settings.data_dir.resolve()
    with platform.database.write() as session:
        runs = {
            status: _run(workshop, status, status=status)
            for status in ("running", "pending", "finished", "failed")
        }
        session.add_all(runs.values())
        session.flush()
        folders = {status: data / "runs" / run.id for status, run in runs.items()}
    folders["gone"] = data / "runs" / "no-such-run"
    for folder in folders.values():
        (folder / "code").mkdir(parents=True)
        (folder / "work").mkdir()
    others = [data / "scratch" / "x", data / "dev-servers" / "x", data / "adapters" / "unpacking-x"]
    others.append(platform.git.folder / f"{UNFINISHED}x")
    for folder in others:
        folder.mkdir(parents=True)
    remove_folders(platform)
    left = {name: sorted(path.name for path in folder.glob("*")) for name, folder in folders.items()}
    assert left == {
        "running": ["code", "work"],
        "pending": ["code", "work"],
        "finished": [],
        "failed": ["work"],
        "gone": [],
    }
    assert not any(folder.exists() for folder in others)


def test_a_repository_that_nobody_owns_is_in_nobodys_way(platform: Platform, workshop: Any) -> None:
    with platform.database.write() as session:
        owner = session.merge(workshop.town.ada.user)
        left = delete_workspace(session, session.get_one(Workspace, workshop.town.acme.id), "acme", by=owner)
    assert platform.git.path("Acme/Agents").is_dir(), "as a crash after the commit leaves it"
    with platform.database.write() as session:
        again = create_workspace(session, name="acme", owner=session.merge(workshop.town.ada.user))
        create_repository(session, platform, again, "Agents", author=workshop.town.ada.user)
    left.remove(platform)
    assert platform.git.path("Acme/Agents").is_dir(), "now it is another workspace's"
    assert platform.git.branches("Acme/Agents") == {}


def test_the_thread_sweeps_and_stops(platform: Platform, keep: Any) -> None:
    sha256 = keep(b"of nobody")
    housekeeping = Housekeeping(platform)
    housekeeping.start()
    deadline = time.monotonic() + 60
    while platform.blobs.exists(sha256):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    housekeeping.stop()
