"""Small tokenizers that carry the chat templates of real model families."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.tiny.tokenizer import chat_template

QWEN_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
LLAMA_SPECIAL = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
)
MISTRAL_SPECIAL = (
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "[TOOL_RESULTS]",
    "[TOOL_CONTENT]",
    "[/TOOL_RESULTS]",
    "[THINK]",
    "[/THINK]",
)
TEXT = [
    "What is 6 times 7? The answer is 42.",
    'assistant user system {"name": "multiply", "arguments": {"a": 6, "b": 7}}',
]

FAMILIES = {
    "tiny": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS[:4], "<|im_end|>", None),
    "qwen3": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS, "<|im_end|>", None),
    "qwen2_5": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS[:2], "<|im_end|>", None),
    "qwen3_instruct_2507": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS, "<|im_end|>", None),
    "qwen3_5_think": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS, "<|im_end|>", None),
    "hermes": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS[:4], "<|im_end|>", None),
    "qwen3_6": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), QWEN_MARKS, "<|im_end|>", None),
    "llama3_1": (LLAMA_SPECIAL, (), "<|eot_id|>", "<|begin_of_text|>"),
    "phi3": (
        ("<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        (),
        "<|endoftext|>",
        "<s>",
    ),
    "phi4_mini": (
        ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        (),
        "<|endoftext|>",
        None,
    ),
    "mistral": (MISTRAL_SPECIAL, (), "</s>", "<s>"),
    "mistral_v3": (MISTRAL_SPECIAL, (), "</s>", "<s>"),
    "gemma3": (("<pad>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), (), "<eos>", "<bos>"),
    "gemma4_v5": (
        ("<pad>", "<bos>", "<eos>", "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>"),
        (),
        "<eos>",
        "<bos>",
    ),
    "gptoss": (
        (
            "<|startoftext|>",
            "<|return|>",
            "<|start|>",
            "<|channel|>",
            "<|message|>",
            "<|end|>",
            "<|call|>",
        ),
        (),
        "<|return|>",
        "<|startoftext|>",
    ),
}
OWN_TEMPLATES = Path(__file__).parent / "templates"


def template_of(family: str) -> str:
    """Our own template, one in the family's style beside these tests, or the one TRL ships for it."""
    if family == "tiny":
        return chat_template()
    own = OWN_TEMPLATES / f"{family}.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    return (Path(trl.__file__).parent / "chat_templates" / f"{family}.jinja").read_text(encoding="utf-8")


@cache
def build(family: str) -> ChatCodec:
    """A byte-level tokenizer of a few merges with the family's marks and template."""
    special, marks, eos, bos = FAMILIES[family]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(TEXT, trainer)
    bpe.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in marks])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=eos, pad_token=eos, bos_token=bos)
    tokenizer.chat_template = template_of(family)
    return ChatCodec(tokenizer)


@pytest.fixture
def codec_of() -> Callable[[str], ChatCodec]:
    """The codec of a family by name."""
    return build


@pytest.fixture
def tiny() -> ChatCodec:
    """The codec of our own tiny models' template."""
    return build("tiny")
