"""The tinker engine: a client of any server of the Tinker API. The algorithm stays here, the model is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from osmosis_trainer.engines.context import room
from osmosis_trainer.engines.protocol import (
    POLICY,
    Completion,
    LossName,
    Objective,
    SamplingParams,
    TrainingRow,
)
from osmosis_trainer.engines.tinker.archive import download_adapter
from osmosis_trainer.engines.tinker.connecting import Connection, connect
from osmosis_trainer.engines.tinker.gradient import WeightedRow, differentiate
from osmosis_trainer.engines.tinker.living import LivingModel
from osmosis_trainer.engines.tinker.model import Adam
from osmosis_trainer.engines.tinker.settings import TinkerSettings
from osmosis_trainer.engines.tinker.state import read_state, write_state
from osmosis_trainer.engines.tinker.wire import batches
from osmosis_trainer.errors import (
    EngineClosedError,
    EngineError,
    StateError,
    UnknownAdapterError,
)
from osmosis_trainer.learner.losses import StepSize
from osmosis_trainer.learner.saving import atomic_folder

_PASSES = 4


class TinkerEngine:
    """See `Engine`. Made by `TinkerEngine.open`."""

    name = "tinker"
    # Not temperature and top_p: the server's learner knows the distribution at temperature 1 alone.
    capabilities = frozenset({"sample", "train", "score", "overlap", "kl", "weight_decay"}) | {
        f"loss:{name}" for name in get_args(LossName)
    }

    def __init__(self, connection: Connection) -> None:
        self.settings = connection.settings
        self.tokenizer = connection.tokenizer
        self.max_context = connection.max_context
        self._transport = connection.transport
        self._sampler = connection.sampler
        self._living = connection.model
        self._pending: list[WeightedRow] = []
        self._passes = asyncio.Semaphore(_PASSES)
        self._closed = False

    @classmethod
    async def open(
        cls, settings: TinkerSettings, log: Callable[[str], None] = lambda text: None
    ) -> TinkerEngine:
        """Connect, find out what the server does with gradients, and make the model to train; `log` gets a line for people.

        Raises ConfigError for a server, model or setting that cannot be used, ServerError when the server fails.
        """
        return cls(await connect(settings, log))

    @property
    def policy_version(self) -> int:
        """The published version."""
        return self._model.version

    @property
    def _model(self) -> LivingModel:
        if self._closed:
            raise EngineClosedError("the engine is closed")
        return self._living

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        adapter: str | None = POLICY,
        on_token: Callable[[int, float], None] | None = None,
    ) -> Completion:
        """See `Engine.sample`. The server answers whole completions: `on_token` is called for all tokens at the end."""
        model, prompt = self._model, list(prompt_ids)
        if adapter not in (POLICY, None):
            raise UnknownAdapterError(f"no adapter is called {adapter!r}; this engine has {POLICY!r} alone")
        left = room(prompt, params, self.max_context)
        if adapter is None:
            done = await self._sampler.sample(None, prompt, params, left, model.version)
        else:
            done = await model.sample(prompt, params, left)
        if on_token is not None:
            for token, logprob in zip(done.token_ids, done.logprobs, strict=True):
                on_token(token, logprob)
        return done

    # -- training ----------------------------------------------------------------------------------------------------

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        """See `Engine.forward_backward`; metrics are defined in docs/engine.md.

        The pass over the rows is made now; their derivatives go to the server with `optim_step`, in one piece, so that
        a server that fails in between has never half a gradient.
        """
        _require_plain(objective.temperature)
        rows = [row for row in rows if any(row.mask)]
        if not rows:
            return {"loss": 0.0, "tokens": 0.0}
        sequences = [row.token_ids for row in rows]
        try:
            new = await self._scores(rows)
            reference = await self._sampler.reference(sequences) if objective.kl_coef else None
            size = StepSize(
                tokens=objective.total_tokens or sum(sum(row.mask) for row in rows),
                rows=objective.total_rows or len(rows),
            )
            weighted, metrics = differentiate(rows, new, reference, objective, size)
        except BaseException:
            self._pending.clear()
            raise
        self._pending += weighted
        tokens = float(sum(map(len, sequences)))
        return metrics | {
            "computed_tokens": tokens,
            "raw_tokens": tokens,
            "micro_batches": float(len(list(batches(rows, self.settings.token_budget)))),
        }

    async def _scores(self, rows: Sequence[TrainingRow]) -> list[list[float]]:
        """Log-probability of every token but the first of each row; a few requests are open at a time."""

        async def one(part: list[TrainingRow]) -> list[list[float]]:
            async with self._passes:
                return await self._model.score([row.token_ids for row in part])

        parts = await asyncio.gather(*map(one, batches(rows, self.settings.token_budget)))
        return [scored for part in parts for scored in part]

    async def optim_step(self, *, lr: float, max_grad_norm: float) -> dict[str, float]:
        """See `Engine.optim_step`. `grad_norm` is there when the server tells it."""
        if not self._pending:
            return {"grad_norm": 0.0, "lr": lr}
        rows, self._pending = self._pending, []
        adam = Adam(lr, max_grad_norm, self.settings.weight_decay)
        measured = await self._model.step(rows, adam)
        norms = [value for name, value in measured.items() if "grad_norm" in name]
        return {"lr": lr} | ({"grad_norm": norms[0]} if norms else {})

    async def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        """See `Scores.score`."""
        _require_plain(temperature)
        return [
            [value for value, trained in zip(values, row.mask[1:], strict=True) if trained]
            for row, values in zip(rows, await self._scores(rows), strict=True)
        ]

    async def publish(self) -> int:
        """See `Engine.publish`. Raises ProbeError when the server then samples from something else."""
        return await self._model.publish()

    # -- state -------------------------------------------------------------------------------------------------------

    async def save_state(self, folder: Path) -> None:
        """See `Engine.save_state`. Weights and optimizer stay on the server; the folder says where."""
        path = await self._model.save()
        await asyncio.to_thread(write_state, folder, self.settings, path, self._model.version)

    async def load_state(self, folder: Path) -> None:
        """See `Engine.load_state`; the loaded weights are published under the saved policy version."""
        path, version = await asyncio.to_thread(read_state, folder, self.settings)
        self._pending.clear()
        try:
            await self._model.begin(path, version)
        except EngineError as error:
            raise StateError(
                f"the weights of {folder} cannot be restored on {self.settings.url}: {error}"
            ) from error

    async def export_adapter(self, folder: Path) -> None:
        """See `Engine.export_adapter`: the published version, as the server hands it out."""
        with atomic_folder(folder) as draft:
            await download_adapter(self._transport, self._model.policy_path, draft)

    # -- other adapters ----------------------------------------------------------------------------------------------

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Always raises EngineError: the API takes no adapters from outside."""
        raise EngineError(
            f"a Tinker server cannot serve {name!r} from {folder}: the API takes no adapters from outside"
        )

    async def unload_adapter(self, name: str) -> None:
        """Always raises UnknownAdapterError: there are none."""
        raise UnknownAdapterError(f"no adapter is called {name!r}; this engine has {POLICY!r} alone")

    async def close(self) -> None:
        """See `Engine.close`. What was saved stays on the server."""
        if self._closed:
            return
        self._closed = True
        await self._living.close()
        await self._transport.close()


def _require_plain(temperature: float) -> None:
    if temperature != 1.0:
        raise EngineError(
            f"rows were sampled at temperature {temperature:g}; a Tinker server scores at temperature 1 alone"
        )
