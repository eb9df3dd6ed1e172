"""Peak memory of a learner step at a vocabulary of 151,936, against the loop that keeps all logits."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.result import Result

VOCABULARY = 151_936
_MIB = 1024.0  # of the kibibytes that the kernel counts


def run(rows: int = 8, tokens: int = 256, rounds: int = 1) -> list[Result]:
    """MiB that one step adds to the process, in a process of its own for each side."""
    with tempfile.TemporaryDirectory() as folder:
        _make_model(Path(folder))
        sides = ("ours", "loop", "ours-again")
        ours, theirs, twice = (
            min(
                _measure(side.split("-")[0], folder, rows * (2 if side.endswith("again") else 1), tokens)
                for _ in range(rounds)
            )
            for side in sides
        )
    name = f"memory of a learner step, {rows} rows of {tokens} tokens, vocabulary {VOCABULARY:,}"
    return [
        Result(name, ours, "MiB", "padded loop with all logits", theirs / ours),
        Result("the same with twice the rows", twice, "MiB", "half the rows", ours / twice),
    ]


def _measure(side: str, folder: str, rows: int, tokens: int) -> float:
    command = [sys.executable, "-m", "benchmarks.learner_memory", side, folder, str(rows), str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])) / _MIB


def _make_model(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>").save_pretrained(
        folder
    )


def _rows(count: int, tokens: int) -> list[Any]:
    from osmosis_trainer.engines.protocol import TrainingRow

    rng = random.Random(0)
    made = []
    for i in range(count):
        ids = [rng.randrange(2, VOCABULARY) for _ in range(tokens)]
        made.append(
            TrainingRow(ids, [0] + [1] * (tokens - 1), [-12.0] * tokens, 0.5 if i % 2 else -0.5, i, str(i))
        )
    return made


def _ours(folder: str, rows: list[Any]) -> Any:
    import asyncio

    from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
    from osmosis_trainer.engines.protocol import Objective

    engine = LocalEngine.load(
        Path(folder), LocalSettings(lora=LoraSettings(), threads=1, slots=1, max_context=512)
    )

    async def step() -> None:
        await engine.forward_backward(rows, Objective())
        await engine.optim_step(lr=1e-4, max_grad_norm=1.0)
        await engine.close()

    return lambda: asyncio.run(step())


def _loop(folder: str, rows: list[Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from benchmarks.learning import padded_micro_batch
    from osmosis_trainer.learner.lora import LoraSettings, attach

    torch.set_num_threads(1)
    model = attach(AutoModelForCausalLM.from_pretrained(folder).requires_grad_(False), LoraSettings())
    trained = sum(sum(row.mask) for row in rows)
    return lambda: padded_micro_batch(model, rows, trained)


def main(side: str, folder: str, rows: int, tokens: int) -> int:
    """Make ready, take the peak so far, do one step, say what it added in KiB."""
    import resource

    made = _rows(rows, tokens)
    step = {"ours": _ours, "loop": _loop}[side](folder, made)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
