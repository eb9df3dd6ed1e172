"""The tiny model's tokenizer: byte-level BPE with single digits and Qwen's chat markers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from osmosis_trainer.tiny.chats import any_task, demonstrate

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
# As in Qwen's tokenizers these are single tokens but not "special": decoding keeps them.
TOOL_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def chat_template() -> str:
    """The Jinja source of the chat template."""
    return Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")


def build_tokenizer(vocab_size: int = 764, chats: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train the tokenizer on synthetic chats; digits are always single tokens, so numbers can be copied."""
    rng = random.Random(seed)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    renderer = PreTrainedTokenizerFast(tokenizer_object=bpe)
    renderer.chat_template = chat_template()
    special = [END_OF_TEXT, TURN_START, TURN_END]
    texts = []
    for _ in range(chats):
        task = any_task(rng)
        turns = demonstrate(rng, task, 0.3)
        text = renderer.apply_chat_template(task.messages + turns, tools=task.tools, tokenize=False)
        for mark in TOOL_MARKS:
            text = text.replace(mark, " ")
        texts.append(text)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in TOOL_MARKS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=TURN_END, pad_token=END_OF_TEXT)
    tokenizer.chat_template = chat_template()
    return tokenizer


def encode_demonstration(
    tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]], turns: list[dict[str, Any]]
) -> tuple[list[int], list[int]]:
    """Token ids of the whole chat and a mask that is 1 on what the assistant wrote (its end mark included)."""
    ids: list[int] = []
    mask: list[int] = []
    said = list(messages)
    for turn in turns:
        if turn["role"] == "assistant":
            before = tokenizer.apply_chat_template(
                said, tools=tools, add_generation_prompt=True, tokenize=False
            )
            ids = tokenizer(before, add_special_tokens=False)["input_ids"]
            mask += [0] * (len(ids) - len(mask))
            new = tokenizer(turn["content"] + TURN_END, add_special_tokens=False)["input_ids"]
            ids, mask = ids + new, mask + [1] * len(new)
        said.append(turn)
    return ids, mask
