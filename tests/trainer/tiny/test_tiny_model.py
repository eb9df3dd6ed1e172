"""The shipped base model: loads offline, is poor at its task, and speaks what agent frameworks send."""

from __future__ import annotations

import asyncio
import json
import random
import re

import pytest
import torch
from transformers import AutoTokenizer

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.tiny import TINY_MULTIPLY, model_names, model_path
from osmosis_trainer.tiny.chats import (
    MultiplyTask,
    openai_agents_task,
    openai_agents_tool,
    strands_task,
    strands_tool,
)
from osmosis_trainer.tiny.tokenizer import build_tokenizer, chat_template

# What openai-agents 0.24.0 and strands-agents 1.62.0 sent for `multiply(a: int, b: int)`, captured on the wire.
OPENAI_AGENTS = (
    '{"type": "function", "function": {"name": "multiply", "description": "Multiply two integers.", "parameters": '
    '{"properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}}, "required": ["a", "b"], '
    '"title": "multiply_args", "type": "object", "additionalProperties": false}, "strict": true}}'
)
STRANDS = (
    '{"type": "function", "function": {"name": "multiply", "description": "Multiply two integers.", "parameters": '
    '{"properties": {"a": {"description": "Parameter a", "type": "integer"}, "b": {"description": "Parameter b", '
    '"type": "integer"}}, "required": ["a", "b"], "type": "object"}}}'
)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY))


def render(tokenizer, messages, tools=None, generate=False) -> str:
    return tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=generate
    )


def test_the_warm_up_tools_are_those_on_the_wire():
    assert json.dumps(openai_agents_tool("Multiply two integers.")) == OPENAI_AGENTS
    assert json.dumps(strands_tool("Multiply two integers.")) == STRANDS


def test_names_lead_to_folders():
    assert TINY_MULTIPLY in model_names()
    assert (model_path(TINY_MULTIPLY) / "model.safetensors").stat().st_size < 4_000_000
    with pytest.raises(ConfigError, match="'nobody/nothing'; shipped are osmosis/tiny-multiply"):
        model_path("nobody/nothing")


def test_the_shipped_template_is_the_source(tokenizer):
    assert tokenizer.chat_template == chat_template()


@pytest.mark.slow
def test_the_shipped_tokenizer_is_the_one_the_script_builds(tokenizer):
    text = "What is 12 times 34? <tool_call>"
    assert build_tokenizer()(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_text_of_a_chat_is_a_prefix_of_its_continuation(tokenizer):
    call = {"id": "c1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}}
    chat = [
        {"role": "system", "content": "Use the multiply tool when arithmetic is required."},
        {"role": "system", "content": [{"type": "text", "text": "You are a calculator."}]},
        {"role": "user", "content": [{"type": "text", "text": "What is 6 times 7?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
        {"role": "assistant", "content": "The answer is 42."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Thanks"},
    ]
    tools = [json.loads(OPENAI_AGENTS)]
    whole = render(tokenizer, chat, tools)
    for length in range(3, len(chat)):
        assert whole.startswith(render(tokenizer, chat[:length], tools)), length
        before_answer = chat[length]["role"] == "assistant"
        assert whole.startswith(render(tokenizer, chat[:length], tools, generate=before_answer)), length
    assert whole.startswith(
        "<|im_start|>system\nUse the multiply tool when arithmetic is required.\n\nYou are a calculator.\n\n# Tools\n"
        + OPENAI_AGENTS
        + "<|im_end|>\n<|im_start|>user\nWhat is 6 times 7?<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>{"name": "multiply", "arguments": {"a": 6, "b": 7}}</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>42</tool_response><|im_end|>\n<|im_start|>assistant\nThe answer is 42.<|im_end|>\n"
        "<|im_start|>system\nBe brief.<|im_end|>\n"
    )


def test_arguments_may_be_text_or_an_object_and_tool_results_share_a_turn(tokenizer):
    def chat(arguments):
        call = {"type": "function", "function": {"name": "multiply", "arguments": arguments}}
        answers = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
        return [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call, call]}, *answers]

    text = render(tokenizer, chat('{"a": 6, "b": 7}'))
    assert text == render(tokenizer, chat({"a": 6, "b": 7}))
    assert text.endswith(
        "<|im_start|>user\n<tool_response>1</tool_response>\n<tool_response>2</tool_response><|im_end|>\n"
    )


async def attempt(engine: LocalEngine, task: MultiplyTask, temperature: float, seed: int):
    """One rollout of the multiply agent: (token_ids, mask, logprobs, reward)."""
    tokenizer = engine.tokenizer
    end = frozenset({tokenizer.convert_tokens_to_ids("<|im_end|>")})
    ids = tokenizer(render(tokenizer, task.messages, task.tools, generate=True))["input_ids"]
    mask, logprobs = [0] * len(ids), [0.0] * len(ids)
    for turn in range(3):
        sample = await engine.sample(
            ids, SamplingParams(64, temperature, stop_ids=end, seed=10 * seed + turn)
        )
        ids, mask = ids + sample.token_ids, mask + [1] * len(sample.token_ids)
        logprobs = logprobs + sample.logprobs
        text = tokenizer.decode(sample.token_ids)
        call = re.search(r'<tool_call>\{"name": "multiply", "arguments": (.*?)\}</tool_call>', text)
        if call is None:
            numbers = re.findall(r"\d+", text)
            return ids, mask, logprobs, float(bool(numbers) and numbers[-1] == task.label)
        try:
            arguments = json.loads(call.group(1))
            result = str(int(arguments[task.argument_names[0]]) * int(arguments[task.argument_names[1]]))
        except (ValueError, KeyError, TypeError):
            break
        more = (
            f"\n<|im_start|>user\n<tool_response>{result}</tool_response><|im_end|>\n<|im_start|>assistant\n"
        )
        new = tokenizer(more)["input_ids"]
        ids, mask, logprobs = ids + new, mask + [0] * len(new), logprobs + [0.0] * len(new)
    return ids, mask, logprobs, 0.0


async def reward(engine: LocalEngine, make, temperature: float, count: int) -> float:
    rng = random.Random(11)
    rollouts = await asyncio.gather(*(attempt(engine, make(rng), temperature, i) for i in range(count)))
    return sum(r[3] for r in rollouts) / count


@pytest.mark.parametrize("make", [openai_agents_task, strands_task])
async def test_the_base_is_poor(make):
    torch.set_num_threads(1)
    engine = LocalEngine.load(model_path(TINY_MULTIPLY), LocalSettings(threads=1, slots=64))
    try:
        sampled = await reward_of_base(engine, make, 1.0)
        greedy = await reward_of_base(engine, make, 0.0)
    finally:
        await engine.close()
    assert 0.1 <= sampled <= 0.5
    assert greedy <= 0.25


async def reward_of_base(engine: LocalEngine, make, temperature: float) -> float:
    rng = random.Random(11)
    end = frozenset({engine.tokenizer.convert_tokens_to_ids("<|im_end|>")})

    async def one(seed: int) -> float:
        task = make(rng)
        ids = engine.tokenizer(render(engine.tokenizer, task.messages, task.tools, generate=True))[
            "input_ids"
        ]
        sample = await engine.sample(
            ids, SamplingParams(48, temperature, stop_ids=end, seed=seed), adapter=None
        )
        first, second = task.argument_names
        wanted = f'"arguments": {{"{first}": {task.a}, "{second}": {task.b}}}'
        return float(wanted in engine.tokenizer.decode(sample.token_ids))

    return sum(await asyncio.gather(*(one(seed) for seed in range(40)))) / 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_training_raises_the_reward_on_both_frameworks(seed: int):
    torch.set_num_threads(1)
    settings = LocalSettings(lora=LoraSettings(seed=seed), threads=1, slots=64)
    engine = LocalEngine.load(model_path(TINY_MULTIPLY), settings)
    rng = random.Random(seed)
    try:
        for step in range(18):
            tasks = [make(rng) for make in (openai_agents_task, strands_task) * 4]
            rows = []
            for group, task in enumerate(tasks):
                rollouts = await asyncio.gather(
                    *(attempt(engine, task, 1.0, 1000 * step + 8 * group + k) for k in range(8))
                )
                advantages = group_advantages([r[3] for r in rollouts])
                if any(advantages):
                    rows += [
                        TrainingRow(ids, mask, logprobs, a, group, f"{group}-{k}")
                        for k, ((ids, mask, logprobs, _), a) in enumerate(
                            zip(rollouts, advantages, strict=True)
                        )
                    ]
            if rows:
                await engine.forward_backward(rows, Objective())
                await engine.optim_step(lr=1.5e-3, max_grad_norm=1.0)
                await engine.publish()
        for make in (openai_agents_task, strands_task):
            assert await reward(engine, make, 1.0, 96) > 0.85
            assert await reward(engine, make, 0.0, 48) > 0.9
    finally:
        await engine.close()
