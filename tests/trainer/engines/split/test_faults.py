"""Servers that fail: the run goes on with another one, or with the same one when it is back; a server that lies ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osmosis_trainer.engines.protocol import Objective, SamplingParams
from osmosis_trainer.engines.split.wire import SamplerFaultError
from osmosis_trainer.errors import EngineError

PROMPT = [5, 6, 7, 8, 9]
PARAMS = SamplingParams(6, seed=1)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)


async def test_a_server_killed_in_the_middle_is_replaced_by_another(
    start_server: Any, open_split: Any, train: Any
) -> None:
    first, second = await start_server(), await start_server()
    engine = await open_split(first, second)
    await train(engine, 1)
    want = await engine.sample(PROMPT, PARAMS)
    first.faults.hang = second.faults.hang = asyncio.Event()
    tasks = [asyncio.create_task(engine.sample(PROMPT, PARAMS)) for _ in range(4)]
    await until(lambda: first.open == second.open == 2)
    second.faults.hang = None
    await first.kill()
    await until(lambda: len(engine.pool.up) == 1)
    assert (await tasks[0]).token_ids == want.token_ids
    assert engine.pool.up[0].server.url == second.url
    await train(engine, 1)
    first.faults.hang = None
    await first.start()
    await until(lambda: len(engine.pool.up) == 2)
    # It was given the newest policy on its way back, under the same name.
    assert set(first.loaded) == set(second.loaded) >= {engine.versions.current.name}
    for task in tasks:
        task.cancel()


async def test_the_only_server_is_waited_for(start_server: Any, open_split: Any, train: Any) -> None:
    lines: list[str] = []
    server = await start_server()
    engine = await open_split(server, log=lines.append)
    await train(engine, 1)
    want = await engine.sample(PROMPT, PARAMS)
    server.faults.hang = asyncio.Event()
    task = asyncio.create_task(engine.sample(PROMPT, PARAMS))
    await until(lambda: server.open)
    await server.kill()
    await until(lambda: not engine.pool.up)
    server.faults.hang = None
    await server.start()
    assert (await task).token_ids == want.token_ids
    assert lines[-2].startswith("a sampling server is lost: ")
    assert lines[-1] == f"the sampling server {server.url} is back"
    # Publishing while no server is there waits for one too.
    await server.kill()
    engine.pool._wait_s = 0.05
    with pytest.raises(EngineError, match="no sampling server was up"):
        await engine.sample(PROMPT, PARAMS)
    engine.pool._wait_s = 60.0
    publishing = asyncio.create_task(engine.publish())
    await server.start()
    assert await publishing == 2
    assert (await engine.sample(PROMPT, PARAMS)).policy_version == 2


async def test_errors_of_a_server_are_tried_again(start_server: Any, open_split: Any) -> None:
    server = await start_server()
    engine = await open_split(server)
    want = await engine.sample(PROMPT, PARAMS)
    server.faults.errors = 3
    assert (await engine.sample(PROMPT, PARAMS)).token_ids == want.token_ids
    assert server.faults.errors == 0


async def test_a_stale_adapter_is_caught_by_the_probe(start_server: Any, open_split: Any, train: Any) -> None:
    good, bad = await start_server(), await start_server()
    engine = await open_split(good, bad)
    bad.faults.stale = True
    with pytest.raises(SamplerFaultError, match=f"{bad.url} does not sample from the policy in training"):
        await train(engine, 1)
    # The fault is for good: nothing is sampled, trained or published any more.
    for attempt in (
        engine.sample(PROMPT, PARAMS),
        engine.forward_backward([], Objective()),
        engine.publish(),
    ):
        with pytest.raises(SamplerFaultError, match="does not sample from the policy"):
            await attempt


@pytest.mark.parametrize(
    ("echo", "words"),
    [
        ("prompt", "echoes other prompt tokens"),
        ("model", "answered with 'another-version'"),
        ("tokens", "returned 5 tokens with 6 log-probabilities"),
    ],
)
async def test_a_server_that_answers_something_else_ends_the_run(
    start_server: Any, open_split: Any, echo: str, words: str
) -> None:
    server = await start_server()
    engine = await open_split(server)
    server.faults.echo = echo
    for _ in range(2):
        with pytest.raises(SamplerFaultError, match=words):
            await engine.sample(PROMPT, PARAMS)
    with pytest.raises(SamplerFaultError, match=words):
        await engine.publish()


async def test_another_base_model_is_noticed_at_the_start(start_server: Any, open_split: Any) -> None:
    server = await start_server()
    server.score = lambda name, ids: [-1.0] * (len(ids) - 1)
    with pytest.raises(SamplerFaultError, match="adapter, base model or number format differ"):
        await open_split(server)


async def test_a_run_does_not_begin_without_its_servers(start_server: Any, open_split: Any) -> None:
    server = await start_server()
    await server.kill()
    with pytest.raises(EngineError, match=f"a sampling server is not ready: {server.url}"):
        await open_split(server)
    await server.start()
