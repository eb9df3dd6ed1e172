"""A learner that outlives its processes: what was done since the last saved state is done again by new ones."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.engines.split import frames
from osmosis_trainer.engines.split.learner_group import (
    LearnerGroup,
    LearnerLostError,
    LearnerSettings,
    PassTooLargeError,
)
from osmosis_trainer.engines.split.shares import merge, split_places, whole_step
from osmosis_trainer.errors import EngineError, NonFiniteLossError
from osmosis_trainer.learner.memory import OutOfMemoryError
from osmosis_trainer.learner.saving import atomic_folder

# Starts without one finished command between them, after which the run fails.
_STARTS = 3

Step = Callable[[LearnerGroup], Awaitable[Any]]


class DurableLearner:
    """The verbs of a learner over a `LearnerGroup` that is started anew when it loses a process.

    `folder` keeps a copy of the last saved state; the steps since then stay in memory and are repeated. On the CPU the
    repetition is bitwise equal.
    """

    def __init__(self, settings: LearnerSettings, folder: Path, log: Callable[[str], None]) -> None:
        self.settings = settings
        self.restarts = 0
        self._folder = folder
        self._log = log
        self._group: LearnerGroup | None = None
        self._saved = False
        self._since: list[Step] = []
        self._turn = asyncio.Lock()

    async def open(self) -> dict[str, Any]:
        """Start the processes; returns what the first says of itself."""
        self._group = await LearnerGroup.start(self.settings)
        return self._group.description

    async def describe(self) -> list[dict[str, Any]]:
        """By rank: `dtype`, `device`, and the `base_bytes` of the base model that the process holds now."""
        return await self._do(lambda group: group.ask("describe"))

    async def rehearse(self, row_tokens: int) -> None:
        """Try a pass of the longest rows in every process; raises OutOfMemoryError when not even one row fits."""
        budgets = await self._do(lambda group: group.ask("rehearse", row_tokens=row_tokens))
        # Processes that stand in for lost ones need not find out again.
        self.settings = replace(self.settings, token_budget=min(budgets))

    @property
    def pids(self) -> list[int]:
        """The processes that run now, by rank."""
        return self._group.pids if self._group is not None else []

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        """See `Engine.forward_backward`; every process computes the gradient of its share of the rows."""
        whole = asdict(whole_step(rows, objective))
        shares = [
            {"rows": frames.pack_rows([rows[place] for place in share]), "objective": whole}
            for share in split_places(rows, self.settings.processes)
        ]

        async def step(group: LearnerGroup) -> dict[str, float]:
            return merge(await group.ask_each("forward_backward", shares))

        return await self._change(step)

    async def optim_step(self, lr: float, max_grad_norm: float) -> dict[str, float]:
        """See `Engine.optim_step`."""

        async def step(group: LearnerGroup) -> dict[str, float]:
            first: dict[str, float] = (await group.ask("optim_step", lr=lr, max_grad_norm=max_grad_norm))[0]
            return first

        return await self._change(step)

    async def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        """Log-probabilities of the trained tokens of each row under the current weights."""
        places = split_places(rows, self.settings.processes)
        shares = [
            {"rows": frames.pack_rows([rows[place] for place in share]), "temperature": temperature}
            for share in places
        ]
        parts = await self._do(lambda group: group.ask_each("score", shares))
        scores: list[list[float]] = [[] for _ in rows]
        for share, part in zip(places, parts, strict=True):
            for place, values in zip(share, part, strict=True):
                scores[place] = values
        return scores

    async def export(self, folder: Path) -> None:
        """Write the adapter in PEFT format to `folder`, which appears at once, flushed to disk."""
        await self._do(lambda group: group.ask_first("export", folder=str(folder)))

    async def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write all an exact resume needs to `folder`; from here on a lost process costs the steps after it only."""
        await self._do(lambda group: group.ask_first("save", folder=str(self._folder), extra=extra))
        self._saved = True
        self._since = []
        await asyncio.to_thread(_copy, self._folder, folder)

    async def load(self, folder: Path) -> dict[str, Any]:
        """Continue from `save`; returns its `extra`."""
        results = await self._do(lambda group: group.ask("load", folder=str(folder)))
        await asyncio.to_thread(_copy, folder, self._folder)
        self._saved = True
        self._since = []
        extra: dict[str, Any] = results[0]
        return extra

    async def close(self) -> None:
        """End the processes."""
        group, self._group = self._group, None
        if group is not None:
            await group.close()

    async def _change[T](self, step: Callable[[LearnerGroup], Awaitable[T]]) -> T:
        """Do a command that changes the learner. Where one process meets what is not finite, all drop their gradient."""
        try:
            return await self._do(step, repeat=True)
        except NonFiniteLossError:
            await self._do(lambda group: group.ask("drop"), repeat=True)
            raise

    async def _do[T](self, step: Callable[[LearnerGroup], Awaitable[T]], *, repeat: bool = False) -> T:
        """Do one command, by new processes when these are lost. `repeat`: it changes the learner, so it is part of what
        new processes must repeat."""
        async with self._turn:
            lost = 0
            while True:
                try:
                    group = self._group or await self._restart()
                    result = await step(group)
                except PassTooLargeError:
                    await self.close()
                    self._halve_passes()
                except LearnerLostError as error:
                    await self.close()
                    self._log(f"{error}; the learner is started again from its last saved state")
                    lost += 1
                    if lost == _STARTS:
                        raise EngineError(
                            f"the learner was lost {_STARTS} times in a row, the last time because {error}"
                        ) from error
                except (asyncio.CancelledError, OutOfMemoryError):
                    # Replies are still on their way, or will never come: the group cannot be asked anything else.
                    await self.close()
                    raise
                else:
                    if repeat:
                        self._since.append(step)
                    return result

    def _halve_passes(self) -> None:
        budget = max(1, self.settings.token_budget // 2)
        self.settings = replace(self.settings, token_budget=budget)
        self._log(
            "out of memory while learning: the learner processes are started again, with passes of at most "
            f"{budget} tokens from now on (the result is the same); a lower [advanced] tokens_per_micro_batch avoids the restart"
        )

    async def _restart(self) -> LearnerGroup:
        self.restarts += 1
        self._group = group = await LearnerGroup.start(self.settings)
        if self._saved:
            await group.ask("load", folder=str(self._folder))
        for step in self._since:
            await step(group)
        return group


def _copy(source: Path, target: Path) -> None:
    """Copy a state folder, which then appears at once; files are shared where the file system can."""
    with atomic_folder(target) as draft:
        for file in source.iterdir():
            try:
                os.link(file, draft / file.name)
            except OSError:
                shutil.copyfile(file, draft / file.name)
