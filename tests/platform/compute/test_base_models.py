"""A platform that is started before its trainer: the trainer's base models come as soon as it does."""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from osmosis_platform.adapters.base_models import find_base_model, resolve_for_training
from osmosis_platform.compute import supervisor as rooms
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.context import Platform
from osmosis_platform.errors import NotFound
from osmosis_platform.evaluation.models import resolve_eval_model

NAME = "osmosis/tiny-multiply"


def test_models_are_registered_when_the_trainer_comes(
    platform: Platform,
    workshop: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rooms, "TRAINER_LOOK_SECONDS", 0.02)
    caplog.set_level(logging.INFO, "osmosis_platform.compute")
    trainer, folder = tmp_path / "trainer" / "bin" / "python", tmp_path / "tiny"
    platform.settings.trainer_python = trainer
    supervisor = Supervisor(platform)
    waiting = threading.Thread(target=supervisor.register_models)
    waiting.start()
    try:
        deadline = time.monotonic() + 60
        while "registered once it is there" not in caplog.text:
            assert time.monotonic() < deadline
            waiting.join(0.02)
        with platform.database.read() as session:
            workspace = workshop.town.acme.id
            for resolve in (
                lambda: resolve_for_training(session, NAME),
                lambda: resolve_eval_model(session, workspace, NAME),
            ):
                with pytest.raises(NotFound, match="as soon as its interpreter answers"):
                    resolve()
        folder.mkdir()
        trainer.parent.mkdir(parents=True)
        made = tmp_path / "made"
        made.write_text(f'#!/bin/sh\necho \'{{"{NAME}": "{folder}"}}\'\n')
        made.chmod(0o755)
        made.rename(trainer)
        waiting.join(60)
        assert not waiting.is_alive()
        with platform.database.read() as session:
            found = find_base_model(session, NAME)
            assert found is not None
            assert found.path == str(folder)
            with pytest.raises(NotFound) as refused:
                resolve_for_training(session, "osmosis/other")
            assert "interpreter" not in refused.value.message
        assert caplog.text.count("registered once it is there") == 1
    finally:
        supervisor.close()
        waiting.join(60)


def test_a_closing_platform_does_not_wait_for_a_trainer(platform: Platform) -> None:
    platform.settings.trainer_python = Path(sys.prefix) / "no-such-python"
    supervisor = Supervisor(platform)
    waiting = threading.Thread(target=supervisor.register_models)
    waiting.start()
    supervisor.close()
    waiting.join(60)
    assert not waiting.is_alive()
