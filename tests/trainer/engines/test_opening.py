"""The configured engine is opened, and what it cannot honour is refused before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from osmosis_trainer.engines import opening
from osmosis_trainer.engines.opening import EngineRequest, open_engine
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.settings import RunSettings


def request(folder: Path, **sections: Any) -> EngineRequest:
    sections = {"training": {"max_prompt_length": 64, "max_response_length": 64}, **sections}
    settings = RunSettings.from_config(sections)
    return EngineRequest(folder, "tiny", settings, folder / "work", lambda text: None)


async def test_the_local_engine_is_the_default(base_folder: Path) -> None:
    engine = await open_engine(request(base_folder, sampling={"rollout_top_p": 0.9}))
    assert (engine.name, engine.max_context) == ("local", 128)
    await engine.close()


@pytest.fixture
def modest(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine that does little, chosen as `tinker`."""

    class Modest:
        name = "modest"
        capabilities = frozenset({"train", "loss:clip"})
        closed = False

        async def close(self) -> None:
            self.closed = True

    engine = Modest()

    async def open_it(_: EngineRequest) -> Modest:
        return engine

    room = ModuleType("modest_engine")
    room.open_engine = open_it  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "modest_engine", room)
    monkeypatch.setitem(opening._ENGINES, "tinker", ("modest_engine", ""))
    return engine


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("advanced", "loss", "gspo", r"\[advanced\] loss = 'gspo'"),
        ("advanced", "kl_coef", 0.1, r"\[advanced\] kl_coef above 0"),
        ("advanced", "weight_decay", 0.1, r"\[advanced\] weight_decay above 0"),
        ("advanced", "max_staleness", 1, r"\[advanced\] max_staleness above 0"),
        ("sampling", "rollout_temperature", 0.5, r"\[sampling\] rollout_temperature other than 1"),
        ("sampling", "rollout_top_p", 0.5, r"\[sampling\] rollout_top_p below 1"),
    ],
)
async def test_a_knob_that_cannot_be_honoured_is_refused(
    modest: Any, tmp_path: Path, section: str, key: str, value: Any, words: str
) -> None:
    sections: dict[str, Any] = {"advanced": {"engine": "tinker"}}
    assert await open_engine(request(tmp_path, **sections)) is modest
    sections.setdefault(section, {})[key] = value
    with pytest.raises(ConfigError, match=f"the engine 'modest' cannot honour {words}"):
        await open_engine(request(tmp_path, **sections))
    assert modest.closed


async def test_an_engine_that_is_not_installed_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(opening._ENGINES, "tinker", ("no_such_client", "pip install no-such-client"))
    with pytest.raises(
        ConfigError, match=r"'tinker' cannot be used: .*'no_such_client' is missing; pip install"
    ):
        await open_engine(request(tmp_path, advanced={"engine": "tinker"}))
