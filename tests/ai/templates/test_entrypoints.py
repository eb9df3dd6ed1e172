"""Scaffold and starters listen where they are told to."""

import runpy

import pytest
import uvicorn

from osmosis_ai.templates import STARTERS
from osmosis_ai.templates.scaffold import init_rollout


@pytest.fixture
def listening(monkeypatch):
    calls = []
    monkeypatch.setattr(uvicorn, "run", lambda app, host, port: calls.append((host, port)))
    return calls


@pytest.mark.parametrize("name", ["scaffold", *STARTERS])
def test_an_entrypoint_takes_host_and_port_from_the_platform(
    tmp_path, template, listening, monkeypatch, name
):
    if name == "scaffold":
        entrypoint = init_rollout("mine", tmp_path, force=False).folder / "main.py"
    else:
        entrypoint = template / "rollouts" / name / "main.py"
    monkeypatch.syspath_prepend(entrypoint.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("_OSMOSIS_ROLLOUT_HOST", "_OSMOSIS_ROLLOUT_PORT"):
        monkeypatch.delenv(variable, raising=False)
    runpy.run_path(str(entrypoint), run_name="__main__")
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_HOST", "127.0.0.1")
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_PORT", "4711")
    runpy.run_path(str(entrypoint), run_name="__main__")
    assert listening == [("0.0.0.0", 8000), ("127.0.0.1", 4711)]
