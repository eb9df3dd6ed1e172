"""Correctness of the local engine on a GPU against the CPU, then its speed: see `benchmarks/gpu_smoke.sh`."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

# Dense bfloat16 peak in TFLOP/s by a part of the device's name, from the makers' data sheets.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "A10": 125, "4090": 165, "B200": 2250}
# Largest difference of log-probabilities to float32 on the CPU, in nats; and of the gradient's direction.
TOLERANCE = {"float32": (5e-4, 1e-3), "bfloat16": (0.25, 0.2)}


@dataclass(frozen=True, slots=True)
class Load:
    """How much to run: requests sampled at once, their prompt and answer tokens, rows of one learner step."""

    requests: int = 64
    prompt: int = 512
    answer: int = 256
    rows: int = 64


def rows_of(vocabulary: int, count: int, tokens: int, seed: int = 0) -> list[TrainingRow]:
    """Random rows in groups of eight with a common prompt, half of each row trained."""
    rng = random.Random(seed)
    made = []
    for group in range((count + 7) // 8):
        prompt = [rng.randrange(5, vocabulary) for _ in range(tokens // 2)]
        for k in range(min(8, count - 8 * group)):
            ids = prompt + [rng.randrange(5, vocabulary) for _ in range(tokens - len(prompt))]
            mask = [0] * len(prompt) + [1] * (tokens - len(prompt))
            made.append(
                TrainingRow(ids, mask, [-1.0] * tokens, 0.5 if k % 2 else -0.5, group, f"{group}-{k}")
            )
    return made


async def fingerprint(folder: Path, device: str, dtype: str) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Log-probabilities of fixed rows, the gradient of a step over them, and a greedy answer."""
    settings = LocalSettings(lora=LoraSettings(rank=8), device=device, dtype=dtype, slots=4, max_context=256)
    engine = LocalEngine.load(folder, settings)
    try:
        rows = rows_of(engine.tokenizer.vocab_size, 16, 64)
        scores = torch.tensor(await engine.score(rows))
        await engine.forward_backward(rows, Objective("is"))
        learner = engine._train()
        gradient = torch.cat(
            [p.grad.flatten().float().cpu() for p in learner.parameters.values() if p.grad is not None]
        )
        answer = await engine.sample(rows[0].token_ids[:32], SamplingParams(16, temperature=0.0))
        return scores, gradient, answer.token_ids
    finally:
        await engine.close()


def check(folder: Path, device: str) -> bool:
    """Compare with float32 on the CPU; prints one line per number."""
    wanted, direction, answer = asyncio.run(fingerprint(folder, "cpu", "float32"))
    fine = True
    for dtype, (nats, turn) in TOLERANCE.items():
        scores, gradient, said = asyncio.run(fingerprint(folder, device, dtype))
        gap = float((scores - wanted).abs().max())
        angle = 1.0 - float(torch.nn.functional.cosine_similarity(gradient, direction, dim=0))
        good = gap <= nats and angle <= turn
        fine &= good
        same = sum(a == b for a, b in zip(said, answer, strict=True))
        print(
            f"{'ok  ' if good else 'FAIL'} {device} {dtype}: log-probabilities within {gap:.2g} nats (at most {nats:g}), "
            f"gradient turned by {angle:.2g} (at most {turn:g}), {same} of {len(answer)} greedy tokens alike"
        )
    return fine


def random_model(folder: Path) -> None:
    """A random model of the shape of Qwen3-0.6B with the tiny model's tokenizer: what matters here is its size."""
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY)).save_pretrained(folder)


async def speed(folder: Path, device: str, load: Load) -> dict[str, float]:
    """Tokens per second of sampling and of learning, each after a warm-up."""
    settings = LocalSettings(
        lora=LoraSettings(),
        device=device,
        slots=load.requests,
        max_context=load.prompt + load.answer,
        token_budget=32_768,
    )
    engine = LocalEngine.load(folder, settings)
    rng = random.Random(0)
    vocabulary = engine.tokenizer.vocab_size

    async def sample(answer: int) -> int:
        prompts = [[rng.randrange(5, vocabulary) for _ in range(load.prompt)] for _ in range(load.requests)]
        done = await asyncio.gather(
            *(engine.sample(p, SamplingParams(answer, seed=i)) for i, p in enumerate(prompts))
        )
        return sum(len(completion.token_ids) for completion in done)

    rows = rows_of(vocabulary, load.rows, load.prompt + load.answer)

    async def learn(some: list[TrainingRow]) -> int:
        await engine.forward_backward(some, Objective())
        await engine.optim_step(lr=1e-5, max_grad_norm=1.0)
        return sum(len(row.token_ids) for row in some)

    try:
        await sample(4)
        began = time.perf_counter()
        sampled = await sample(load.answer)
        sampling = sampled / (time.perf_counter() - began)
        await learn(rows[:8])
        began = time.perf_counter()
        learned = await learn(rows)
        training = learned / (time.perf_counter() - began)
        size = sum(p.numel() for p in engine._train().base.parameters())
    finally:
        await engine.close()
    return {
        "parameters": size,
        "sampling_tokens_per_second": sampling,
        "training_tokens_per_second": training,
    }


def share_of_peak(found: dict[str, float], device_name: str) -> str:
    """Model FLOPs (2 a parameter and token forward, 6 with LoRA's backward and recomputation) as a share of the peak."""
    peak = next((value for name, value in PEAKS.items() if name in device_name), None)
    if peak is None:
        return f"the peak of {device_name} is not known here"
    used = 6 * found["parameters"] * found["training_tokens_per_second"] / 1e12
    return f"{used:.1f} of {peak} TFLOP/s in training: {used / peak:.1%} of the peak"


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when every check holds, 1 when one fails, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_smoke.sh", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="folder of a model in transformers format")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the script itself")
    parser.add_argument("--small", action="store_true", help="a hundredth of the load, on the tiny model")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU here; nothing was run", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print(f"{name}, torch {torch.__version__}")
    tiny = model_path(TINY_MULTIPLY)
    if not check(options.model or tiny, options.device):
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        folder: Any = options.model
        load = Load(4, 32, 16, 8) if options.small else Load()
        if folder is None:
            folder = tiny if options.small else Path(scratch)
            if not options.small:
                random_model(folder)
        found = asyncio.run(speed(folder, options.device, load))
    print(json.dumps({key: round(value, 1) for key, value in found.items()}))
    print(share_of_peak(found, name))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
