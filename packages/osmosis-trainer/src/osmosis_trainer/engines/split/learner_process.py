"""One learner process of the split engine: the local learner on a share of the rows, gradients summed over all of them.

The first message on standard input is its place in the group, every other one a command; each is answered on standard
output. Standard input is also the lifeline: at its end the process exits at once, with status 70.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

from osmosis_ai.worker.lifeline import ORPHANED
from osmosis_trainer.engines.protocol import Objective
from osmosis_trainer.engines.split import frames
from osmosis_trainer.engines.split.learner_group import PassTooLargeError
from osmosis_trainer.engines.split.reduce import sum_gradients
from osmosis_trainer.errors import ConfigError, TrainerError
from osmosis_trainer.learner import lora, saving
from osmosis_trainer.learner.base_model import load_base
from osmosis_trainer.learner.lora import LoraSettings
from osmosis_trainer.learner.memory import OutOfMemoryError, is_out_of_memory
from osmosis_trainer.learner.passes import WholePasses
from osmosis_trainer.learner.sharding import ShardedPasses, held_bytes
from osmosis_trainer.learner.step import Learner

logger = logging.getLogger(__name__)

# Processes may be this far apart, for instance in reading the weights.
_PATIENCE = timedelta(hours=1)


class LearnerProcess:
    """A learner and the commands it obeys. `place` is what `LearnerGroup` sends first."""

    def __init__(self, place: dict[str, Any]) -> None:
        rank, world = int(place["rank"]), int(place["world"])
        torch.set_num_threads(int(place["threads"]))
        device = _device(rank, world)
        dist.init_process_group(
            "nccl" if device.startswith("cuda") else "gloo",
            init_method=f"file://{place['rendezvous']}",
            rank=rank,
            world_size=world,
            timeout=_PATIENCE,
        )
        self.settings = LoraSettings(**place["lora"])
        on_gpu = device.startswith("cuda")
        self.sharded = place["sharding"] == "fsdp"
        # What is sharded may fit no device as a whole, so it is read into the host's memory.
        model, tokenizer = load_base(
            Path(place["base_model"]),
            "cpu" if self.sharded else device,
            "bfloat16" if on_gpu else "float32",
        )
        adapted = lora.attach(model, self.settings)
        passes: WholePasses | None = None
        if self.sharded:
            adapter = lora.trainable(adapted).values()
            passes = ShardedPasses(adapted.get_base_model(), torch.device(device), adapter)
        self.dtype, self.device = str(model.dtype).removeprefix("torch."), device
        self.learner = Learner(
            adapted,
            tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
            token_budget=int(place["token_budget"]),
            weight_decay=float(place["weight_decay"]),
            recompute=on_gpu if place["recompute"] is None else place["recompute"],
            passes=passes,
        )
        self.commands: dict[str, Callable[..., Any]] = {
            "describe": self.describe,
            "rehearse": self.rehearse,
            "forward_backward": self.forward_backward,
            "drop": self.learner.drop_gradient,
            "optim_step": self.optim_step,
            "score": lambda rows, temperature: self.learner.score(frames.unpack_rows(rows), temperature),
            "export": self.export,
            "save": lambda folder, extra: saving.save(self.learner, Path(folder), extra),
            "load": lambda folder: saving.load(self.learner, Path(folder), self.settings),
        }

    def describe(self) -> dict[str, Any]:
        """What this process computes with, and how many bytes of the base model it holds."""
        return {
            "dtype": self.dtype,
            "device": self.device,
            "base_bytes": held_bytes(self.learner.model),
        }

    def rehearse(self, row_tokens: int) -> int:
        """Try the longest rows; returns the tokens that a pass may hold."""
        self.learner.rehearse(row_tokens)
        return self.learner.token_budget

    def forward_backward(self, rows: list[Any], objective: dict[str, Any]) -> dict[str, float]:
        """Add the gradient over this process's rows."""
        return self.learner.forward_backward(frames.unpack_rows(rows), Objective(**objective))

    def optim_step(self, lr: float, max_grad_norm: float) -> dict[str, float]:
        """Sum the gradients and step; every process takes the same step."""
        sum_gradients(self.learner.parameters.values())
        return self.learner.optim_step(lr, max_grad_norm)

    def export(self, folder: str) -> None:
        """Write the adapter in PEFT format as a folder that appears at once."""
        with saving.atomic_folder(Path(folder)) as draft:
            lora.export(self.learner.model, draft)

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Obey one command. Errors of ours are answered; any other ends the process, whose state is then unknown.

        `alone`: the other processes are in the middle of a pass and will not answer.
        """
        try:
            return {"result": self.commands[message["command"]](**message.get("arguments", {}))}
        except TrainerError as error:
            alone = self.sharded and isinstance(error, OutOfMemoryError)
            return {"error": error.code, "message": str(error), "alone": alone}
        except RuntimeError as error:
            if not (self.sharded and is_out_of_memory(error)):
                raise
            return {"error": PassTooLargeError.code, "message": str(error), "alone": True}


def _device(rank: int, world: int) -> str:
    if not torch.cuda.is_available():
        return "cpu"
    if world > torch.cuda.device_count():
        raise ConfigError(
            f"[advanced] split_learners is {world}, but {torch.cuda.device_count()} GPUs are visible to the trainer; "
            "each learner process needs one of its own"
        )
    torch.cuda.set_device(rank)
    return f"cuda:{rank}"


def _listen(stream: BinaryIO, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    while (message := frames.read(stream)) is not None:
        inbox.put(message)
    os._exit(ORPHANED)


def main() -> None:
    """Serve until standard input ends."""
    # Libraries print to standard output; the answers get a descriptor that they do not know.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(
        target=_listen, args=(os.fdopen(os.dup(0), "rb"), inbox), name="lifeline", daemon=True
    ).start()

    def reply(message: dict[str, Any]) -> None:
        answers.write(frames.encode(message))
        answers.flush()

    try:
        process = LearnerProcess(inbox.get())
    except TrainerError as error:
        reply({"error": error.code, "message": str(error)})
        return
    reply(process.answer({"command": "describe"}))
    while True:
        reply(process.answer(inbox.get()))


if __name__ == "__main__":
    main()
