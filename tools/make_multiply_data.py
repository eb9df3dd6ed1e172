"""Writes the multiply datasets of the workspace template; the result is committed, so this runs only to change them.

Usage: python tools/make_multiply_data.py [FOLDER]. Training and held-out rows share no unordered pair of factors.
"""

import json
import random
import sys
from pathlib import Path

TRAIN_ROWS = 512
HELD_OUT_ROWS = 64
LARGEST_FACTOR = 99
QUESTIONS = (
    "What is {a} times {b}?",
    "Multiply {a} by {b}.",
    "Compute {a} * {b}.",
    "{a} x {b} = ?",
    "What is the product of {a} and {b}?",
    "Calculate {a} * {b}",
    "Please multiply {a} and {b}.",
)
SYSTEM_PROMPTS = (
    "Use the multiply tool when arithmetic is required.",
    "You are a helpful assistant.",
    "You are a calculator. Use the tools.",
)
FOLDER = Path("packages/osmosis-ai/src/osmosis_ai/templates/workspace/data")


def make_rows(seed: int = 0) -> tuple[list[str], list[str]]:
    """Training and held-out rows as JSON lines, the same for the same seed."""
    rng = random.Random(seed)
    pairs = [(a, b) for a in range(1, LARGEST_FACTOR + 1) for b in range(a, LARGEST_FACTOR + 1)]
    chosen = rng.sample(pairs, TRAIN_ROWS + HELD_OUT_ROWS)
    lines = []
    for pair in chosen:
        a, b = rng.sample(pair, 2)
        lines.append(
            json.dumps(
                {
                    "system_prompt": rng.choice(SYSTEM_PROMPTS),
                    "user_prompt": rng.choice(QUESTIONS).format(a=a, b=b),
                    "ground_truth": str(a * b),
                }
            )
        )
    return lines[:TRAIN_ROWS], lines[TRAIN_ROWS:]


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    train, held_out = make_rows()
    (folder / "multiply.jsonl").write_text("\n".join(train) + "\n", encoding="utf-8")
    (folder / "multiply-heldout.jsonl").write_text("\n".join(held_out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
