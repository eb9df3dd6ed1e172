"""Sampling over HTTP: what is asked, what comes back, and which policy version answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from osmosis_trainer.engines.protocol import Engine, SamplingParams
from osmosis_trainer.errors import ConfigError, ContextLengthError, EngineError, UnknownAdapterError

PROMPT = [5, 6, 7, 8, 9]


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)


async def held_back(engine: Any, server: Any) -> tuple[asyncio.Task[Any], asyncio.Event]:
    """A call whose answer the server keeps until the event is set."""
    hang = server.faults.hang = asyncio.Event()
    slow = asyncio.create_task(engine.sample(PROMPT, SamplingParams(4, seed=1)))
    await until(lambda: server.open)
    server.faults.hang = None
    return slow, hang


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_a_served_policy_is_the_learners(
    start_server: Any, open_split: Any, train: Any, prompts: Any, dialect: str
) -> None:
    server = await start_server()
    engine = await open_split(server, advanced={"split_dialect": dialect})
    assert isinstance(engine, Engine)
    await train(engine, 2)
    assert engine.policy_version == await engine.learner.local.publish() + 1 == 2
    told: list[tuple[int, float]] = []
    stop = frozenset(range(10, 40))
    for seed, prompt in enumerate(prompts(4)):
        params = SamplingParams(12, seed=seed, stop_ids=stop)
        got = await engine.sample(prompt, params, on_token=lambda *pair: told.append(pair))
        want = await engine.learner.local.sample(prompt, params)  # type: ignore[attr-defined]
        assert got.policy_version == 2
        assert (got.token_ids, got.finish_reason) == (want.token_ids, want.finish_reason)
        assert got.logprobs == pytest.approx(want.logprobs, abs=1e-5)
        assert told == list(zip(got.token_ids, got.logprobs, strict=True))
        told.clear()
    # One version is left, under a name of its own.
    assert len(server.loaded) == 1
    assert [line.split()[0] for line in server.history] == ["load", "load", "unload", "load", "unload"]
    assert len({line for line in server.history if line.startswith("load")}) == 3


async def test_turns_in_flight_keep_their_version(start_server: Any, open_split: Any, train: Any) -> None:
    server = await start_server()
    engine = await open_split(server)
    slow, hang = await held_back(engine, server)
    await train(engine, 1)
    assert (await engine.sample(PROMPT, SamplingParams(4, seed=1))).policy_version == 1
    assert len(server.loaded) == 2
    assert len(list(engine.versions.live[0].folder.parent.iterdir())) == 2
    hang.set()
    assert (await slow).policy_version == 0
    await engine.publish()
    assert len(server.loaded) == 1


async def test_publishing_waits_for_a_place_on_the_server(
    start_server: Any, open_split: Any, train: Any
) -> None:
    server = await start_server(slots=2)
    engine = await open_split(server)
    slow, hang = await held_back(engine, server)
    await train(engine, 1)
    publishing = asyncio.create_task(engine.publish())
    await asyncio.sleep(0)
    assert len(server.loaded) == 2
    hang.set()
    assert await publishing == 2
    assert (await slow).policy_version == 0
    assert len(server.loaded) <= 2


async def test_cancelling_frees_the_place_on_the_server(start_server: Any, open_split: Any) -> None:
    server = await start_server()
    engine = await open_split(server)
    server.faults.hang = asyncio.Event()
    task = asyncio.create_task(engine.sample(PROMPT, SamplingParams(4)))
    await until(lambda: server.open)
    task.cancel()
    await until(lambda: server.cancelled == 1 and not server.open)
    assert engine.versions.current.open == 0


async def test_base_model_and_other_adapters(
    start_server: Any, open_split: Any, train: Any, tmp_path: Path
) -> None:
    engine = await open_split(await start_server())
    await train(engine, 3)
    params = SamplingParams(8, temperature=0.0)
    mine = await engine.sample(PROMPT, params)
    base = await engine.sample(PROMPT, params, adapter=None)
    assert mine.logprobs != base.logprobs
    await engine.export_adapter(tmp_path / "adapter")
    await engine.load_adapter("mine", tmp_path / "adapter")
    assert (await engine.sample(PROMPT, params, adapter="mine")).token_ids == mine.token_ids
    await engine.unload_adapter("mine")
    with pytest.raises(UnknownAdapterError, match="no adapter is called 'mine'"):
        await engine.sample(PROMPT, params, adapter="mine")
    with pytest.raises(ContextLengthError, match="256"):
        await engine.sample([5] * 256, params)


async def test_state_is_exact_and_published_again(
    start_server: Any, open_split: Any, train: Any, tmp_path: Path
) -> None:
    server = await start_server()
    engine = await open_split(server)
    await train(engine, 2)
    await engine.save_state(tmp_path / "state")
    before = await engine.sample(PROMPT, SamplingParams(8, seed=3))
    await train(engine, 1)
    await engine.load_state(tmp_path / "state")
    after = await engine.sample(PROMPT, SamplingParams(8, seed=3))
    assert (after.token_ids, after.policy_version) == (before.token_ids, 2)
    assert after.logprobs == pytest.approx(before.logprobs, abs=1e-5)


async def test_what_an_earlier_worker_left_is_removed(start_server: Any, open_split: Any) -> None:
    server = await start_server()
    await open_split(server)
    assert len(server.loaded) == 1
    await open_split(server)
    assert len(server.loaded) == 1


async def test_too_few_adapter_slots_are_refused(start_server: Any, open_split: Any) -> None:
    server = await start_server(slots=2)
    with pytest.raises(ConfigError, match=r"holds 2 adapters, 3 are needed .*--max-loras 3"):
        await open_split(server, advanced={"max_staleness": 1})


async def test_on_a_gpu_the_longest_rows_are_tried_before_anything_is_sampled(
    start_server: Any, open_split: Any
) -> None:
    server = await start_server()
    for device, rehearsed in [("cpu", []), ("cuda:0", [256])]:
        engine = await open_split(server, device=device)
        assert engine.learner.rehearsed == rehearsed


@pytest.mark.parametrize(
    ("sampling", "words"),
    [({"rollout_temperature": 0.5}, "leave the temperature out"), ({"rollout_top_p": 0.9}, "leave it out")],
)
async def test_log_probabilities_must_be_those_of_what_was_sampled(
    start_server: Any, open_split: Any, sampling: dict[str, float], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"{words}; start vLLM with --logprobs-mode processed_logprobs"):
        await open_split(await start_server(raw=True), sampling=sampling)
    engine = await open_split(await start_server(), sampling=sampling)
    temperature, top_p = sampling.get("rollout_temperature", 1.0), sampling.get("rollout_top_p", 1.0)
    params = SamplingParams(6, temperature=temperature, top_p=top_p, seed=4)
    got = await engine.sample(PROMPT, params)
    want = await engine.learner.local.sample(PROMPT, params)  # type: ignore[attr-defined]
    assert got.logprobs == pytest.approx(want.logprobs, abs=1e-5)


async def test_the_key_is_a_secret_of_the_run(start_server: Any, open_split: Any) -> None:
    server = await start_server(key="s3cret-value")
    for advanced, words in [({}, "refuses: HTTP 401"), ({"split_key": "KEY"}, "names the secret 'KEY'")]:
        with pytest.raises(EngineError if not advanced else ConfigError, match=words) as refused:
            await open_split(server, advanced=advanced)
        assert "s3cret" not in str(refused.value)
    engine = await open_split(server, advanced={"split_key": "KEY"}, secrets={"KEY": "s3cret-value"})
    assert (await engine.sample(PROMPT, SamplingParams(2))).token_ids


@pytest.mark.parametrize("urls", ["", "ftp://x", "http://u:p@x", "http://a, http://a"])
async def test_bad_addresses_are_refused(base_folder: Path, tmp_path: Path, urls: str) -> None:
    from osmosis_trainer.engines.opening import EngineRequest
    from osmosis_trainer.engines.split.opening import connect
    from osmosis_trainer.settings import RunSettings

    settings = RunSettings.from_config({"advanced": {"engine": "split", "split_servers": urls}})
    with pytest.raises(ConfigError, match="split_servers") as refused:
        connect(EngineRequest(base_folder, "tiny", settings, tmp_path, lambda text: None))
    assert "u:p" not in str(refused.value)
