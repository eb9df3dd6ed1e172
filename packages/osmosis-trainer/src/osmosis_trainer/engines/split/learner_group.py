"""The learner processes as one: started together, asked together, ended together."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from osmosis_trainer.engines.split import frames
from osmosis_trainer.errors import EngineError, TrainerError
from osmosis_trainer.learner.lora import LoraSettings
from osmosis_trainer.together import together


class LearnerLostError(EngineError):
    """A learner process ended while it was needed; the group must be started anew."""

    code = "learner_lost"


class PassTooLargeError(EngineError):
    """A process ran out of memory in a pass that the others wait for: the group must be started anew, with smaller passes."""

    code = "pass_too_large"


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How the learner processes run; see `LocalSettings` for the fields that both share. `threads` is per process.

    `sharding` "fsdp": each process holds its part of the base model and not all of it (`learner.sharding`).
    """

    base_model: Path
    processes: int
    lora: LoraSettings
    threads: int
    token_budget: int
    weight_decay: float
    sharding: Literal["none", "fsdp"] = "none"
    recompute: bool | None = None


class LearnerGroup:
    """Running learner processes; made by `start`. One command at a time."""

    def __init__(self, processes: list[Process]) -> None:
        self._processes = processes
        self.description: dict[str, Any] = {}

    @property
    def pids(self) -> list[int]:
        """Process ids by rank."""
        return [process.pid for process in self._processes]

    @classmethod
    async def start(cls, settings: LearnerSettings) -> LearnerGroup:
        """Start all processes and wait until each has loaded the model. Raises what kept one of them from it."""
        with tempfile.TemporaryDirectory(prefix="osmosis-learners-") as meeting:
            group = cls([await _spawn() for _ in range(settings.processes)])
            try:
                common = asdict(settings) | {
                    "world": settings.processes,
                    "rendezvous": f"{meeting}/store",
                    "base_model": str(settings.base_model),
                }
                places = [common | {"rank": rank} for rank in range(settings.processes)]
                # The first error counts: a process that could not load leaves the others waiting for it.
                asked = zip(group._processes, places, strict=True)
                answers = await together(_result(process, place) for process, place in asked)
                group.description = answers[0]
            except BaseException:
                await group.close()
                raise
        return group

    async def ask(self, command: str, **arguments: Any) -> list[Any]:
        """Send one command to all processes; their results by rank."""
        return await self.ask_each(command, [arguments] * len(self._processes))

    async def ask_each(self, command: str, arguments: Sequence[dict[str, Any]]) -> list[Any]:
        """Send a command with arguments of its own to each process.

        Raises the first error a process answers with (all have answered then); LearnerLostError when one is gone, and
        PassTooLargeError or OutOfMemoryError where the others cannot answer: the group is of no use any more.
        """
        return await self._exchange([{"command": command, "arguments": given} for given in arguments])

    async def ask_first(self, command: str, **arguments: Any) -> Any:
        """Send one command to the first process alone: for what all would do alike."""
        return (await self._exchange([{"command": command, "arguments": arguments}]))[0]

    async def _exchange(self, messages: Sequence[dict[str, Any]]) -> list[Any]:
        pairs = zip(self._processes, messages, strict=False)
        replies = await together(_ask(process, message) for process, message in pairs)
        return [_open(reply) for reply in replies]

    async def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()
        for process in self._processes:
            await process.communicate()


async def _spawn() -> Process:
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    # Without a name gloo looks up the host's own, which in many containers leads nowhere.
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "osmosis_trainer.engines.split.learner_process",
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
    )


async def _ask(process: Process, message: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(frames.encode(message))
        await process.stdin.drain()
        (length,) = frames.LENGTH.unpack(await process.stdout.readexactly(frames.LENGTH.size))
        reply = frames.decode(await process.stdout.readexactly(length))
    except (OSError, asyncio.IncompleteReadError) as error:
        status = await process.wait()
        raise LearnerLostError(f"learner process {process.pid} ended with status {status}") from error
    if reply.get("alone"):
        _open(reply)
    return reply


async def _result(process: Process, message: dict[str, Any]) -> Any:
    return _open(await _ask(process, message))


def _open(reply: dict[str, Any]) -> Any:
    if "error" in reply:
        raise _error(reply["error"], reply["message"])
    return reply["result"]


def _error(code: str, message: str) -> TrainerError:
    kinds = {kind.code: kind for kind in _kinds(TrainerError) if "code" in vars(kind)}
    return kinds.get(code, EngineError)(message)


def _kinds(kind: type[TrainerError]) -> Iterator[type[TrainerError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)
