"""Make the tiny base model: `python -m osmosis_trainer.tiny.make OUT`. About 400 CPU-seconds.

First the model learns to do the task right (`clean` steps), then a short noisy phase teaches it to guess most of the
time. The result answers badly, sampled and greedy, but the right behaviour is one small adapter away: what a base
model for demonstrations and tests of reinforcement learning has to be.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from osmosis_trainer.tiny.chats import any_task, demonstrate
from osmosis_trainer.tiny.tokenizer import TURN_END, build_tokenizer, encode_demonstration

Example = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Recipe:
    """Size and schedule. `noise` is the share of demonstrations with a mistake in the noisy phase."""

    hidden: int = 128
    layers: int = 4
    clean_steps: int = 425
    noisy_steps: int = 75
    noise: float = 0.7
    clean_lr: float = 3e-3
    noisy_lr: float = 1e-3
    batch: int = 32
    seed: int = 0


def make(out: Path, recipe: Recipe, start: Path | None = None) -> None:
    """Train and save to `out`; the state after the clean phase is kept in `<out>-clean`, from which `start` resumes."""
    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed + 7)
    if start is None:
        tokenizer = build_tokenizer(seed=recipe.seed)
        model = new_model(tokenizer, recipe)
        clean = batches(tokenizer, rng, 0.0, recipe.batch)
        run_phase(model, clean, recipe.clean_steps, recipe.clean_lr, tokenizer.pad_token_id, "clean")
        save(model, tokenizer, out.with_name(out.name + "-clean"))
    else:
        tokenizer = AutoTokenizer.from_pretrained(start)
        model = Qwen3ForCausalLM.from_pretrained(start)
    noisy = batches(tokenizer, random.Random(recipe.seed + 8), recipe.noise, recipe.batch)
    run_phase(model, noisy, recipe.noisy_steps, recipe.noisy_lr, tokenizer.pad_token_id, "noisy")
    save(model, tokenizer, out)


def new_model(tokenizer: Any, recipe: Recipe) -> Any:
    """A Qwen3 model with random weights, sized by `recipe`."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=3 * recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.hidden // 32,
        num_key_value_heads=recipe.hidden // 64,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(TURN_END),
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def batches(tokenizer: Any, rng: random.Random, noise: float, size: int) -> Iterator[list[Example]]:
    """Endless batches. Clean ones are sorted by length; noisy ones are not, because sorting would put guesses and
    calls, which differ in length, into different batches."""
    while True:
        pool: list[Example] = []
        for _ in range(1024):
            task = any_task(rng)
            turns = demonstrate(rng, task, noise)
            pool.append(encode_demonstration(tokenizer, task.messages, task.tools, turns))
        if not noise:
            pool.sort(key=lambda example: len(example[0]))
        order = [pool[i : i + size] for i in range(0, len(pool), size)]
        rng.shuffle(order)
        yield from order


def run_phase(
    model: Any, source: Iterator[list[Example]], steps: int, peak_lr: float, pad: int, name: str
) -> None:
    """Supervised training on the assistant's tokens; the rate warms up and decays to a small floor."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    started = time.process_time()
    for step in range(steps):
        rate = peak_lr * (1 - step / steps) ** (0.5 if name == "clean" else 1.0)
        if name == "clean":
            rate = rate * min(1.0, step / 50) + 0.05 * peak_lr
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = batch_loss(model, next(source), pad)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 24 or step == steps - 1:
            spent = time.process_time() - started
            sys.stderr.write(f"{name} step {step + 1}/{steps} loss {loss.item():.3f} cpu {spent:.0f} s\n")


def batch_loss(model: Any, batch: list[Example], pad: int) -> Any:
    """Mean cross-entropy over the assistant's tokens; the head runs on those positions alone."""
    width = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), width), pad)
    keep = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, (tokens, mask) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        keep[row, : len(mask)] = torch.tensor(mask, dtype=torch.bool)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    keep = keep[:, 1:]
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[keep]), ids[:, 1:][keep])


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Write a folder that transformers 4 and 5 and other readers of the format load."""
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(out)
    # transformers 5 writes a class name that 4 does not know, and how the tokenizer was loaded, which is nobody's business.
    file = out / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for key in ("backend", "is_local", "local_files_only"):
        config.pop(key, None)
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Command line of the script."""
    parser = argparse.ArgumentParser(prog="python -m osmosis_trainer.tiny.make", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write the model to")
    parser.add_argument(
        "--start", type=Path, help="a finished clean phase (<out>-clean); only the noisy phase runs"
    )
    parser.add_argument("--noise", type=float, default=Recipe.noise)
    parser.add_argument("--noisy-steps", type=int, default=Recipe.noisy_steps)
    parser.add_argument("--clean-steps", type=int, default=Recipe.clean_steps)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    recipe = Recipe(
        noise=arguments.noise, noisy_steps=arguments.noisy_steps, clean_steps=arguments.clean_steps
    )
    make(arguments.out, recipe, arguments.start)


if __name__ == "__main__":
    main()
