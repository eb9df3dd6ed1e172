"""Base models and the files of adapters."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.adapters.base_models import register_shipped, resolve_for_training
from osmosis_platform.adapters.checkpoints import record_checkpoint
from osmosis_platform.adapters.files import unpack_adapter
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.adapters.shipped import shipped_models
from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput, NotFound, Unavailable
from osmosis_platform.runs.models import Run


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("prefix", ["", "./", "adapter/"])
def test_an_adapter_unpacks_flat(tmp_path: Path, prefix: str) -> None:
    names = ("adapter_config.json", "adapter_model.safetensors")
    unpack_adapter(tar_of(*((tarfile.TarInfo(prefix + name), b"{}") for name in names)), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == list(names)


def test_archives_that_would_leave_their_folder_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("adapter_config.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    inside = tmp_path / "inside"
    inside.mkdir()
    for archive in (
        tar_of((tarfile.TarInfo("../outside"), b"x")),
        tar_of((tarfile.TarInfo("a/../../outside"), b"x")),
        tar_of((link, b"")),
        tar_of((tarfile.TarInfo("something"), b"x")),
        io.BytesIO(b"this is no archive"),
    ):
        with pytest.raises(InvalidInput):
            unpack_adapter(archive, inside)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_shipped_models_are_asked_from_the_trainer_once(platform: Platform, tmp_path: Path) -> None:
    folder, calls = tmp_path / "tiny", tmp_path / "calls"
    folder.mkdir()
    trainer = tmp_path / "python"
    trainer.write_text(
        f'#!/bin/sh\necho asked >> {calls}\necho \'{{"osmosis/tiny-multiply": "{folder}"}}\'\n'
    )
    trainer.chmod(0o755)
    platform.settings.trainer_python = trainer
    for _ in range(2):
        assert shipped_models(platform) == {"osmosis/tiny-multiply": folder}
    assert calls.read_text() == "asked\n"
    with platform.database.write() as session:
        register_shipped(session, {"osmosis/tiny-multiply": folder})
        register_shipped(session, {"osmosis/tiny-multiply": tmp_path})
        assert session.query(BaseModel).one().path == str(tmp_path), "a moved folder is followed"


def test_a_missing_trainer_is_named(platform: Platform) -> None:
    platform.settings.trainer_python = Path("/no/such/python")
    with pytest.raises(Unavailable, match="/no/such/python"):
        shipped_models(platform)
    platform.settings.trainer_python = Path(sys.executable)
    with pytest.raises(Unavailable, match="osmosis_trainer"):
        shipped_models(platform)


def test_new_base_models_are_registered_on_submit(platform: Platform, workshop: Any, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with platform.database.write() as session:
        by_hub = resolve_for_training(session, "Qwen/Qwen3-0.6B")
        assert (by_hub.name, by_hub.path) == ("Qwen/Qwen3-0.6B", None)
        assert resolve_for_training(session, "Qwen/Qwen3-0.6B").id == by_hub.id
        mine = resolve_for_training(session, str(folder))
        assert mine.path == str(folder)
        assert resolve_for_training(session, f"{folder}/").id == mine.id
        for wrong, error in (("osmosis/none", NotFound), ("./relative", InvalidInput), ("a b/c", NotFound)):
            with pytest.raises(error):
                resolve_for_training(session, wrong)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('{"architectures": ["BertForMaskedLM"]}', "it is a BertForMaskedLM, which writes no text"),
        (
            '{"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true}',
            "an encoder with a decoder",
        ),
        ('{"architectures": [', "config.json cannot be read"),
        ("[]", "holds no JSON object"),
        ('{"architectures": ["Qwen3_5ForConditionalGeneration"]}', None),
        ('{"architectures": ["GPT2LMHeadModel"]}', None),
    ],
)
def test_a_folder_without_a_language_model_is_refused_on_submit(
    platform: Platform, tmp_path: Path, config: str, reason: str | None
) -> None:
    (tmp_path / "config.json").write_text(config)
    with platform.database.write() as session:
        if reason is None:
            assert resolve_for_training(session, str(tmp_path)).path == str(tmp_path)
            return
        with pytest.raises(InvalidInput, match=f"cannot be trained: .*{reason}") as caught:
            resolve_for_training(session, str(tmp_path))
    assert caught.value.field == "experiment.model_path"


def test_base_models_are_listed_and_found_by_name_with_a_slash(client: httpx.Client, workshop: Any) -> None:
    headers = workshop.town.max.scoped()
    listed = client.get("/api/cli/models/base?limit=1", headers=headers).json()
    assert [model["model_name"] for model in listed["models"]] == ["tiny/model"]
    found = client.get("/api/cli/models/base/tiny%2Fmodel", headers=headers).json()
    assert (found["id"], found["namespace"]) == (workshop.base_model_id, "tiny")
    assert client.get("/api/cli/models/base/no%2Fsuch", headers=headers).status_code == 404
    assert client.get("/api/cli/models/tiny-model", headers=headers).status_code == 404


def test_a_checkpoint_that_is_no_adapter_is_not_deployed(
    client: httpx.Client, platform: Platform, workshop: Any
) -> None:
    with platform.database.write() as session:
        run = Run(
            workspace_id=workshop.town.acme.id, kind="train", name="calm-heron", creator_id=workshop.town.ada.user.id,
            rollout_name="echo", entrypoint="main.py", commit_sha="0" * 40, model_path="tiny/model",
            dataset_id=workshop.dataset_id, config={}, base_model_id=workshop.base_model_id,
        )  # fmt: skip
        session.add(run)
        session.flush()
        record_checkpoint(
            session, run, step=3, reward=None, blob_sha256=platform.blobs.put_bytes(b"no tar").sha256
        )
    answer = client.post(
        "/api/cli/models/calm-heron-step-3/deploy", json={}, headers=workshop.town.ada.scoped()
    )
    assert (answer.status_code, "cannot be unpacked" in answer.json()["error"]) == (400, True)
    model = client.get("/api/cli/models/calm-heron-step-3", headers=workshop.town.ada.scoped()).json()
    assert model["deployment_status"] is None
