"""A model that outlives its server: what the server loses is made again from the last saved weights and the steps since."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence

from osmosis_trainer.engines.protocol import Completion, SamplingParams
from osmosis_trainer.engines.tinker.errors import RequestLostError, ServerError
from osmosis_trainer.engines.tinker.gradient import WeightedRow
from osmosis_trainer.engines.tinker.history import History, TrainedStep
from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.engines.tinker.lease import Lease
from osmosis_trainer.engines.tinker.model import Adam, RemoteModel
from osmosis_trainer.engines.tinker.probe import Probe
from osmosis_trainer.engines.tinker.reduction import step_datums
from osmosis_trainer.engines.tinker.retention import Retention
from osmosis_trainer.engines.tinker.sampling import RemoteSampler
from osmosis_trainer.engines.tinker.settings import TinkerSettings

# How often one request may cost a restoration before the run fails.
_LIVES = 3


class LivingModel:
    """The adapter in training and its published version, through restarts of the server.

    A request whose fate is unknown is never sent again to the same model: weights and optimizer go back to the last
    saved ones first. So no gradient is added twice and no step is done twice.
    """

    def __init__(
        self,
        transport: Transport,
        settings: TinkerSettings,
        lease: Lease,
        reduction: str,
        sampler: RemoteSampler,
        probe: Probe,
        log: Callable[[str], None],
    ) -> None:
        self.version = 0
        self.policy_path = ""
        self._transport, self._settings, self._lease, self._reduction = transport, settings, lease, reduction
        self._sampler, self._probe, self._log = sampler, probe, log
        self._history = History()
        self._model: RemoteModel | None = None
        self._lock = asyncio.Lock()
        self._name = f"osmosis-{uuid.uuid4().hex[:12]}"
        self._saved = 0
        self._retention = Retention(transport)

    async def begin(self, checkpoint: str | None = None, version: int = 0) -> None:
        """Make the model, from a path that `save` returned if one is given, and publish it as `version`."""
        async with self._lock:
            old, self._model = self._model, None
            if old is not None:
                await old.unload()
            self._history = History(checkpoint)
            self.version = version
            self._model = await self._make()

    async def close(self) -> None:
        """Give the model's place on the server back; saved weights stay."""
        if self._model is not None:
            await self._model.unload()

    # -- verbs -------------------------------------------------------------------------------------------------------

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `RemoteModel.score`."""
        return await self._on_model(lambda model: model.score(sequences))

    async def step(self, rows: Sequence[WeightedRow], adam: Adam) -> dict[str, float]:
        """One optimizer step along the derivatives of `rows`; returns what the server measured."""
        step = TrainedStep(rows, adam)
        metrics = await self._on_model(lambda model: self._do(model, step))
        self._history.steps.append(step)
        return metrics

    async def publish(self) -> int:
        """Make the present weights those of later samples, under a new version."""

        async def attempt(model: RemoteModel) -> str:
            return await self._publish(model, self.version + 1)

        self.policy_path = await self._on_model(attempt)
        self.version += 1
        self._history.published = len(self._history.steps)
        return self.version

    async def save(self) -> str:
        """Keep weights and optimizer on the server; returns their path."""
        path = await self._on_model(lambda model: model.save(self._new_name("state")))
        self._history = History(path)
        await self._retention.kept(path)
        return path

    async def sample(self, prompt: Sequence[int], params: SamplingParams, room: int) -> Completion:
        """One completion of at most `room` tokens by the published version."""

        async def attempt(_: RemoteModel) -> Completion:
            return await self._sampler.sample(self.policy_path, prompt, params, room, self.version)

        return await self._on_model(attempt)

    # -- making it again -----------------------------------------------------------------------------------------------

    async def _on_model[T](self, verb: Callable[[RemoteModel], Awaitable[T]]) -> T:
        for life in range(_LIVES):
            model = await self._living()
            try:
                return await verb(model)
            except RequestLostError as error:
                if life == _LIVES - 1:
                    raise ServerError(f"{error}; the model was restored {life} times for this") from error
                await self._restore(model, error)
        raise AssertionError("unreachable")

    async def _living(self) -> RemoteModel:
        async with self._lock:
            if (
                self._model is None
            ):  # an earlier restoration failed, perhaps because the server was away for too long
                self._model = await self._make()
            return self._model

    async def _restore(self, broken: RemoteModel, error: RequestLostError) -> None:
        async with self._lock:
            if self._model is not broken:
                return  # another request found out first
            self._log(
                f"the server lost the model ({error}); it is restored from "
                f"{self._history.checkpoint or 'its first weights'} and {len(self._history.steps)} later steps"
            )
            self._model = None
            await broken.unload()
            self._model = await self._make()

    async def _make(self) -> RemoteModel:
        """A model on the server in the state of the history, its version published."""
        for life in range(_LIVES):
            try:
                return await self._make_once()
            except RequestLostError as error:
                if life == _LIVES - 1:
                    raise ServerError(f"the model cannot be restored: {error}") from error
        raise AssertionError("unreachable")

    async def _make_once(self) -> RemoteModel:
        model = await RemoteModel.create(self._transport, self._settings, self._lease)
        try:
            await self._replay(model)
        except BaseException:
            await model.unload()
            raise
        return model

    async def _replay(self, model: RemoteModel) -> None:
        history = self._history
        if history.checkpoint is not None:
            await model.load(history.checkpoint)
        for step in history.steps[: history.published]:
            await self._do(model, step)
        self.policy_path = await self._publish(model, self.version)
        for step in history.steps[history.published :]:
            await self._do(model, step)

    async def _do(self, model: RemoteModel, step: TrainedStep) -> dict[str, float]:
        datums, budget = step_datums(step.rows, self._reduction), self._settings.token_budget
        parts: list[list[dict[str, object]]] = []
        room = 0
        for row, datum in zip(step.rows, datums, strict=True):
            if not parts or room < row.positions:
                parts.append([])
                room = budget
            parts[-1].append(datum)
            room -= row.positions
        return await model.train(parts, step.adam)

    async def _publish(self, model: RemoteModel, version: int) -> str:
        path = await model.save_for_sampler(self._new_name(f"v{version}"))

        async def sample(prompt: Sequence[int], params: SamplingParams) -> Completion:
            return await self._sampler.sample(path, prompt, params, params.max_tokens, version)

        await self._probe.check(sample, model.score)
        await self._retention.published(path)
        return path

    def _new_name(self, what: str) -> str:
        """A name that no weights on the server have yet."""
        self._saved += 1
        return f"{self._name}-{self._saved}-{what}"
