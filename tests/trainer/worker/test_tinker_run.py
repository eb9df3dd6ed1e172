"""The whole loop on a server of the Tinker API that is restarted in the middle, with the key from the spec's secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors.torch import load_file


@pytest.fixture
async def server(tinker_server: ModuleType, base_model: Path, tmp_path: Path) -> AsyncIterator[Any]:
    running = tinker_server.TinkerServer(base_model, tmp_path / "server", name="tiny/random")
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def tinker(server: Any, tinker_server: ModuleType) -> dict[str, Any]:
    """What `[advanced]` says."""
    return {
        "engine": "tinker",
        "tinker_url": server.url,
        "tinker_key": "SERVER_KEY",
        "lora_alpha": 32,
        "torch_threads": None,
        "validation_rows": 0,
        "max_steps": 2,
        "max_concurrent_rollouts": 6,
    }


async def test_a_run_trains_through_a_restart_of_its_server(
    make_run: Any, platform: Any, server: Any, tinker: dict[str, Any], tinker_server: ModuleType
) -> None:
    restarts: list[asyncio.Task[None]] = []

    async def restart() -> str:
        restarts.append(asyncio.create_task(server.restart()))
        return "cut"

    run = make_run(advanced=tinker)
    run.spec["secrets"] = {"SERVER_KEY": tinker_server.KEY}
    working = asyncio.create_task(run.work())
    await platform.until(lambda p: 1 in p.values("train/loss"))
    server.faults["optim_step"] = [restart]
    assert await working == 0, platform.log()
    await asyncio.gather(*restarts)
    assert len(restarts) == 1

    assert set(platform.values("rollout/raw_reward")) == {1, 2}
    assert all(0.0 <= gap < 1e-4 for gap in platform.values("train/sampler_gap_max").values())
    assert all(norm > 0 for norm in platform.values("train/grad_norm").values())
    assert all(entropy > 0 for entropy in platform.values("train/entropy_loss").values())
    assert platform.values("rollout/retokenized_turns") == {1: 0.0, 2: 0.0}
    [restored] = [line for line in platform.log() if "the server lost the model" in line]
    assert "tinker://" in restored
    assert any("adds up the losses of a step as sum" in line for line in platform.log())

    last = platform.of("checkpoint")[-1]
    assert last["final"] is True
    weights = load_file(f"{last['path']}/adapter_model.safetensors")
    assert any(value.abs().max() > 0 for name, value in weights.items() if "lora_B" in name)
    assert server.models == {}
    everything = b"".join([repr(platform.events).encode(), *platform.blobs.values()])
    assert tinker_server.KEY.encode() not in everything
    for file in run.folder.rglob("*"):
        assert not file.is_file() or tinker_server.KEY.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"advanced": {"lora_alpha": 16}},
            "cannot honour [advanced] lora_alpha = 16: the Tinker API has no field",
        ),
        ({"advanced": {"torch_threads": 1}}, "cannot honour [advanced] torch_threads"),
        (
            {"sampling": {"rollout_temperature": 0.7}},
            "cannot honour [sampling] rollout_temperature other than 1",
        ),
        ({"sampling": {"rollout_top_p": 0.9}}, "cannot honour [sampling] rollout_top_p below 1"),
        ({"advanced": {"tinker_key": "OTHER"}}, "names the secret 'OTHER', which the run does not have"),
        ({"advanced": {"tinker_url": None, "tinker_key": None}}, "needs the address of a server"),
        ({"advanced": {"tinker_url": "http://u:pw@host"}}, "without user, password or query"),
    ],
)
async def test_what_cannot_be_honoured_fails_the_run_before_the_server_is_asked(
    make_run: Any,
    platform: Any,
    server: Any,
    tinker: dict[str, Any],
    tinker_server: ModuleType,
    changes: dict[str, Any],
    words: str,
) -> None:
    sections = changes | {"advanced": tinker | changes.get("advanced", {})}
    run = make_run(**sections)
    run.spec["secrets"] = {"SERVER_KEY": tinker_server.KEY}
    assert await run.work() == 4
    [failed] = platform.of("failed")
    assert failed["error_type"] == "config_invalid"
    assert words in failed["reason"]
    assert "pw" not in failed["reason"]
    assert not server.calls


async def test_the_key_of_the_deployment_goes_to_its_own_server_alone(
    make_run: Any,
    platform: Any,
    server: Any,
    tinker: dict[str, Any],
    tinker_server: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", tinker_server.KEY)
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    # A run that names an address itself gets no key from the deployment.
    assert await make_run("own", advanced=tinker | {"tinker_key": None}).work() == 4
    assert "requests without an API key" in platform.of("failed")[-1]["reason"]
    # A run that names none goes to the deployment's server with its key, as far as the model's name.
    server.name = "renamed"
    await make_run("given", advanced=tinker | {"tinker_key": None, "tinker_url": None}).work()
    assert "has no model 'tiny/random'" in platform.of("failed")[-1]["reason"]
