"""Training through the engine: sampler and learner agree, state is exact, exports load anywhere."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from osmosis_trainer.engines.local import LoraSettings
from osmosis_trainer.engines.protocol import Engine, Objective, SamplingParams, TrainingRow
from osmosis_trainer.errors import EngineError, StateError


def parameters(engine):
    return {name: p.detach().clone() for name, p in engine._learner.parameters.items()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


async def test_sampler_and_learner_agree(make_engine, train):
    engine = make_engine()
    assert isinstance(engine, Engine)
    await train(engine, 4)
    prompt = [7, 8, 9, 10] * 5
    samples = [await engine.sample(prompt, SamplingParams(40, seed=s)) for s in range(6)]
    rows = [
        TrainingRow(prompt + s.token_ids, [0] * 20 + [1] * 40, [0.0] * 20 + s.logprobs, 1.0, 0, str(i))
        for i, s in enumerate(samples)
    ]
    scored = await engine.score(rows)
    gaps = [
        abs(a - b)
        for s, new in zip(samples, scored, strict=True)
        for a, b in zip(s.logprobs, new, strict=True)
    ]
    assert max(gaps) <= 1e-5
    assert sum(gaps) / len(gaps) <= 1e-6 * 2
    metrics = await engine.forward_backward(rows, Objective())
    assert metrics["logprob_gap_max"] == pytest.approx(max(gaps), abs=1e-6)
    assert metrics["tokens"] == 240


async def test_training_raises_the_chance_of_rewarded_rows(make_engine, train):
    engine = make_engine()
    rows = await train(engine, 1)
    before = await engine.score(rows)
    for _ in range(5):
        await engine.forward_backward(rows, Objective())
        metrics = await engine.optim_step(lr=5e-3, max_grad_norm=1.0)
        assert metrics["grad_norm"] > 0
    after = await engine.score(rows)
    changes = [sum(new) - sum(old) for old, new in zip(before, after, strict=True)]
    gained = [change for row, change in zip(rows, changes, strict=True) if row.advantage > 0]
    lost = [change for row, change in zip(rows, changes, strict=True) if row.advantage < 0]
    assert min(gained) > 0
    assert sum(gained) / len(gained) > 0.5 + sum(lost) / len(lost)


async def test_resumed_equals_uninterrupted(make_engine, train, tmp_path: Path):
    engine = make_engine()
    await train(engine, 2)
    await engine.save_state(tmp_path / "state")
    rows = await train(engine, 1)
    await engine.forward_backward(rows, Objective())
    await engine.optim_step(lr=1e-2, max_grad_norm=1.0)

    other = make_engine(lora=LoraSettings(rank=4, alpha=8, seed=99))
    assert not same(parameters(other), parameters(engine))
    await other.load_state(tmp_path / "state")
    assert other.policy_version == 2
    again = await train(other, 1)
    assert [row.token_ids for row in again] == [row.token_ids for row in rows]
    assert other.policy_version == 3
    await other.forward_backward(rows, Objective())
    await other.optim_step(lr=1e-2, max_grad_norm=1.0)
    assert same(parameters(other), parameters(engine))


async def test_saving_replaces_atomically_and_keeps_nothing_else(make_engine, train, tmp_path: Path):
    engine = make_engine()
    await engine.save_state(tmp_path / "state")
    await train(engine, 1)
    await engine.save_state(tmp_path / "state")
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    other = make_engine()
    await other.load_state(tmp_path / "state")
    assert same(parameters(other), parameters(engine))


@pytest.mark.parametrize(
    "missing", ["optimizer.pt", "engine.json", "adapter_model.safetensors", "adapter_config.json"]
)
async def test_a_missing_piece_is_an_error(make_engine, tmp_path: Path, missing: str):
    engine = make_engine()
    await engine.save_state(tmp_path / "state")
    (tmp_path / "state" / missing).unlink()
    with pytest.raises(StateError, match=missing):
        await engine.load_state(tmp_path / "state")


async def test_state_of_another_run_is_refused(make_engine, tmp_path: Path):
    await make_engine().save_state(tmp_path / "state")
    other = make_engine(lora=LoraSettings(rank=8, alpha=8))
    with pytest.raises(StateError, match="rank 4 and alpha 8, but this run uses rank 8"):
        await other.load_state(tmp_path / "state")
    file = tmp_path / "state" / "engine.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"parameters": ["x"]}))
    with pytest.raises(StateError, match="another model"):
        await make_engine().load_state(tmp_path / "state")


async def test_exports_load_in_peft_and_in_another_engine(
    make_engine, train, base_folder: Path, tmp_path: Path
):
    engine = make_engine()
    await train(engine, 5)
    await engine.export_adapter(tmp_path / "adapter")
    targets = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert targets == sorted(targets)  # the same bytes in every process
    assert len(targets) == 7
    prompt = [5, 6, 7, 8, 9]
    mine = await engine.sample(prompt, SamplingParams(12, temperature=0.0))
    base = await engine.sample(prompt, SamplingParams(12, temperature=0.0), adapter=None)
    assert mine.logprobs != base.logprobs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(base_folder), tmp_path / "adapter"
        ).eval()
    ids = list(prompt)
    for token, logprob in zip(mine.token_ids, mine.logprobs, strict=True):
        with torch.no_grad():
            wanted = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, -1], -1)
        assert logprob == pytest.approx(float(wanted[token]), abs=1e-5)
        ids.append(token)

    server = make_engine(lora=None)
    await server.load_adapter("mine", tmp_path / "adapter")
    served = await server.sample(prompt, SamplingParams(12, temperature=0.0), adapter="mine")
    assert served.token_ids == mine.token_ids
    await server.unload_adapter("mine")
    with pytest.raises(EngineError, match="no adapter is called 'mine'"):
        await server.sample(prompt, SamplingParams(1), adapter="mine")


async def test_a_serving_engine_does_not_train(make_engine, tmp_path: Path):
    server = make_engine(lora=None)
    assert "train" not in server.capabilities
    with pytest.raises(EngineError, match="without an adapter to train"):
        await server.optim_step(lr=1e-3, max_grad_norm=1.0)
    with pytest.raises(EngineError, match=r"adapter_config\.json does not exist"):
        await server.load_adapter("x", tmp_path)


async def test_while_the_learner_works_samples_come_from_the_published_policy(make_engine, train):
    engine = make_engine()
    rows = await train(engine, 2)
    prompts = [[7, 8, 9, 10, 11 + k] for k in range(4)]

    async def sampled():
        return await asyncio.gather(
            *(engine.sample(prompt, SamplingParams(24, seed=3)) for prompt in prompts)
        )

    before = await sampled()
    # The reference pass switches the learner's adapter off, the step moves its weights: neither shows outside.
    learning = asyncio.create_task(engine.forward_backward(rows * 20, Objective(kl_coef=0.1)))
    during = []
    while not learning.done():
        during += await sampled()
    await learning
    await engine.optim_step(lr=5e-2, max_grad_norm=1.0)
    during += await sampled()
    assert len(during) > len(before)
    for one, old in zip(during, before * (len(during) // len(before)), strict=True):
        assert (one.token_ids, one.policy_version) == (old.token_ids, 2)
        assert one.logprobs == pytest.approx(old.logprobs, abs=1e-5)
    assert await engine.publish() == 3
    after = await sampled()
    assert {one.policy_version for one in after} == {3}
    assert [one.logprobs for one in after] != [old.logprobs for old in before]
