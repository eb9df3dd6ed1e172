"""A server that is slow, busy, cut off, restarted or forgetful changes nothing about what is trained."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow
from osmosis_trainer.engines.tinker import TinkerEngine
from osmosis_trainer.engines.tinker.errors import ServerError
from osmosis_trainer.errors import (
    ContextLengthError,
    EngineClosedError,
    EngineError,
    NonFiniteLossError,
    StateError,
    UnknownAdapterError,
)


def fixed_rows(step: int) -> list[TrainingRow]:
    """Rows that do not depend on what is sampled: the same training in every run."""
    generator = random.Random(step)
    rows = []
    for n in range(4):
        tokens = [generator.randrange(2, 96) for _ in range(generator.randint(5, 14))]
        mask = [0, 0] + [1] * (len(tokens) - 2)
        rows.append(TrainingRow(tokens, mask, [-5.0] * len(tokens), (-1.0) ** n, n // 2, f"{step}-{n}"))
    return rows


async def one_step(engine: TinkerEngine, step: int) -> None:
    await engine.forward_backward(fixed_rows(step), Objective(loss="is"))
    await engine.optim_step(lr=1e-2, max_grad_norm=1.0)
    await engine.publish()


async def weights(engine: TinkerEngine, folder: Path) -> dict[str, torch.Tensor]:
    await engine.export_adapter(folder)
    return load_file(folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, torch.Tensor]]:
    """What was computed once for several tests."""
    return {}


@pytest.fixture
async def calm(
    open_tinker: Callable[..., Any], tmp_path: Path, known: dict[str, dict[str, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """The adapter after three steps without a fault."""
    if "calm" in known:
        return known["calm"]
    engine = await open_tinker()
    for step in range(3):
        await one_step(engine, step)
    found = await weights(engine, tmp_path / "calm")
    await engine.close()
    known["calm"] = found
    return found


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


async def test_three_steps_are_the_same_under_every_fault(
    open_tinker: Callable[..., Any], server: Any, calm: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    told: list[str] = []
    engine = await open_tinker(told.append)
    told.clear()
    # Harmless ones: asked again.
    server.faults["retrieve_future"] = ["try_again", 408, 503, "cut", 429, 500, "try_again"]
    server.faults["forward"] = [429, 503, "cut", "after"]
    await one_step(engine, 0)
    assert told == []
    assert server.faults["retrieve_future"] == server.faults["forward"] == []
    await engine.save_state(tmp_path / "state-1")

    # A gradient, then a step, of which nobody knows whether it was done: each would count twice if it were sent again.
    server.faults["forward_backward"] = ["after"]
    await one_step(engine, 1)
    server.faults["optim_step"] = ["cut"]
    await engine.forward_backward(fixed_rows(2), Objective(loss="is"))
    await engine.optim_step(lr=1e-2, max_grad_norm=1.0)
    assert len(told) == 2
    assert "500" in told[0]
    assert "0 later steps" in told[0]
    assert "broke the connection" in told[1]
    assert "and 1 later steps" in told[1]

    # A restart between step and publication, and one before a sample.
    await server.restart()
    await engine.publish()
    assert engine.policy_version == 3
    await server.restart()
    prompt = [4, 5, 6]
    sample = await engine.sample(prompt, SamplingParams(6, seed=1))
    assert sample.policy_version == 3
    assert len(told) == 4
    assert "and 2 later steps" in told[3]
    assert same(await weights(engine, tmp_path / "rough"), calm)
    assert len(server.models) == 1

    # What is sampled is what the restored model holds.
    row = TrainingRow(
        prompt + sample.token_ids,
        [0] * 3 + [1] * len(sample.token_ids),
        [0.0] * 3 + sample.logprobs,
        1.0,
        0,
        "s",
    )
    [scored] = await engine.score([row])
    assert scored == pytest.approx(sample.logprobs, abs=1e-5)


@pytest.mark.slow
async def test_samples_in_flight_survive_a_restart(open_tinker: Callable[..., Any], server: Any) -> None:
    told: list[str] = []
    engine = await open_tinker(told.append)
    expected = [await engine.sample([7, 8], SamplingParams(20, seed=n)) for n in range(6)]
    reached, gone = asyncio.Event(), asyncio.Event()

    async def until_gone() -> int:
        reached.set()
        await gone.wait()
        return 503

    server.faults["retrieve_future"] = [until_gone]
    samples = [asyncio.create_task(engine.sample([7, 8], SamplingParams(20, seed=n))) for n in range(6)]
    await reached.wait()
    restart = asyncio.create_task(server.restart())
    gone.set()
    await restart
    assert [done.token_ids for done in await asyncio.gather(*samples)] == [
        done.token_ids for done in expected
    ]
    assert len(told) == 2  # the line about the server, and one restoration for all


async def test_a_new_worker_continues_from_the_state_folder(
    open_tinker: Callable[..., Any], server: Any, calm: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    lease = tmp_path / "models.json"
    killed = await open_tinker(lease=lease)
    await one_step(killed, 0)
    await killed.save_state(tmp_path / "state")
    await one_step(killed, 1)  # lost: it was not saved
    assert len(server.models) == 1
    server.max_models = 1  # no place until the killed worker's model is given back

    engine = await open_tinker(lease=lease)
    assert engine.policy_version == 0
    await engine.load_state(tmp_path / "state")
    assert engine.policy_version == 1
    assert len(server.models) == 1
    for step in (1, 2):
        await one_step(engine, step)
    assert engine.policy_version == 3
    assert same(await weights(engine, tmp_path / "again"), calm)
    await engine.close()
    assert json.loads(lease.read_text()) == []


async def test_a_state_that_is_gone_or_foreign_is_an_error(
    open_tinker: Callable[..., Any], server: Any, tmp_path: Path
) -> None:
    engine = await open_tinker()
    await engine.save_state(tmp_path / "state")
    file = tmp_path / "state" / "tinker.json"
    state = json.loads(file.read_text())
    assert server.url in state["server"]
    for change, words in [
        ({"lora_rank": 8}, "lora_rank 8, but this run uses 4"),
        ({"base_model": "other"}, "base_model 'other'"),
        ({"format": 9}, "another format"),
        ({"path": state["path"] + "x"}, "cannot be restored on"),
    ]:
        file.write_text(json.dumps(state | change))
        with pytest.raises(StateError, match=words):
            await engine.load_state(tmp_path / "state")
    file.unlink()
    with pytest.raises(StateError, match=r"tinker\.json cannot be read"):
        await engine.load_state(tmp_path / "state")


async def test_the_server_keeps_the_newest_weights_only(
    open_tinker: Callable[..., Any], server: Any, tmp_path: Path
) -> None:
    engine = await open_tinker()
    [model] = server.models
    for step in range(4):
        await one_step(engine, step)
        await engine.save_state(tmp_path / "state")
    assert len(list((server.folder / model / "weights").iterdir())) == 3
    assert len(list((server.folder / model / "sampler_weights").iterdir())) == 2
    assert server.keys_seen_elsewhere == []
    await engine.export_adapter(tmp_path / "adapter")
    # The archive lies at a signed address elsewhere, which never sees the key.
    assert server.keys_seen_elsewhere == [None]


async def test_a_loss_that_is_not_finite_leaves_no_gradient_behind(
    open_tinker: Callable[..., Any], server: Any
) -> None:
    engine = await open_tinker()
    rows = fixed_rows(0)
    await engine.forward_backward(rows[:2], Objective(loss="is"))
    endless = TrainingRow(rows[2].token_ids, rows[2].mask, [-1e4] * len(rows[2].mask), 1.0, 0, "endless")
    with pytest.raises(NonFiniteLossError):
        await engine.forward_backward([endless], Objective(loss="is"))
    server.calls.clear()
    assert await engine.optim_step(lr=1e-2, max_grad_norm=1.0) == {"grad_norm": 0.0, "lr": 1e-2}
    assert "optim_step" not in server.calls


async def test_a_request_that_the_server_refuses_again_and_again_fails_with_its_reason(
    open_tinker: Callable[..., Any], server: Any
) -> None:
    engine = await open_tinker()
    server.faults["forward"] = [422]
    with pytest.raises(ServerError, match="forward: the server answered 422: out of order"):
        await engine.forward_backward(fixed_rows(0), Objective())
    await engine.forward_backward(fixed_rows(0), Objective())
    server.faults["optim_step"] = ["cut"] * 3
    with pytest.raises(ServerError, match=r"broke the connection.*the model was restored 2 times"):
        await engine.optim_step(lr=1e-2, max_grad_norm=1.0)


async def test_what_cannot_be_sampled_is_said(open_tinker: Callable[..., Any]) -> None:
    engine = await open_tinker(max_context=40)
    with pytest.raises(ContextLengthError, match=r"40 tokens and the model's context 40"):
        await engine.sample([5] * 40, SamplingParams(4))
    with pytest.raises(UnknownAdapterError, match="'other'"):
        await engine.sample([5], SamplingParams(4), adapter="other")
    with pytest.raises(EngineError, match="takes no adapters from outside"):
        await engine.load_adapter("other", Path("x"))
    with pytest.raises(EngineError, match=r"temperature 0\.5"):
        await engine.forward_backward(fixed_rows(0), Objective(temperature=0.5))
    heard: list[tuple[int, float]] = []
    long = await engine.sample(
        [5] * 37, SamplingParams(9, seed=1), on_token=lambda token, logprob: heard.append((token, logprob))
    )
    assert (len(long.token_ids), long.finish_reason) == (3, "length")
    assert heard == list(zip(long.token_ids, long.logprobs, strict=True))
    base = await engine.sample([5] * 37, SamplingParams(3, seed=1), adapter=None)
    assert base.token_ids == long.token_ids  # an adapter that was never trained changes nothing
    stop = frozenset(long.token_ids[:1])
    stopped = await engine.sample([5] * 37, SamplingParams(3, seed=1, stop_ids=stop))
    assert (stopped.token_ids, stopped.finish_reason) == (long.token_ids[:1], "stop")
    await engine.close()
    with pytest.raises(EngineClosedError):
        await engine.sample([5], SamplingParams(1))
