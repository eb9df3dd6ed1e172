"""The split engine: the verbs of `Engine` over learner processes and sampling servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from osmosis_trainer.engines.context import room
from osmosis_trainer.engines.protocol import (
    POLICY,
    Completion,
    LossName,
    Objective,
    SamplingParams,
    TrainingRow,
)
from osmosis_trainer.engines.split.durable_learner import DurableLearner
from osmosis_trainer.engines.split.pool import Member, ServerPool
from osmosis_trainer.engines.split.publishing import Publisher, leave
from osmosis_trainer.engines.split.versions import Versions
from osmosis_trainer.engines.split.wire import Sampled, check_answer
from osmosis_trainer.errors import EngineClosedError, EngineError, UnknownAdapterError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class SplitEngine:
    """See `Engine`. Made by `opening.open_engine`, which has published the first policy as version 0.

    Answers come back whole, so a request that loses its server starts again on another one and no token is told twice.
    """

    name = "split"
    capabilities = frozenset(
        {"sample", "adapters", "train", "kl", "weight_decay", "temperature", "top_p", "score", "overlap"}
    ) | {f"loss:{name}" for name in get_args(LossName)}

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        max_context: int,
        learner: DurableLearner,
        versions: Versions,
        pool: ServerPool,
        publisher: Publisher,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.policy_version = 0
        self.learner = learner
        self.versions = versions
        self.pool = pool
        self.publisher = publisher
        self._closed = False

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        adapter: str | None = POLICY,
        on_token: Callable[[int, float], None] | None = None,
    ) -> Completion:
        """See `Engine.sample`. `on_token` is told everything at the end, when the server has answered."""
        if self._closed:
            raise EngineClosedError("the engine is closed")
        asked = replace(params, max_tokens=room(prompt_ids, params, self.max_context))
        if adapter == POLICY:
            async with self.versions.use() as version:
                number, answer = version.number, await self._ask(version.name, prompt_ids, asked)
        else:
            if adapter is not None and adapter not in self.versions.others:
                loaded = ", ".join([POLICY, *sorted(self.versions.others)])
                raise UnknownAdapterError(f"no adapter is called {adapter!r}; loaded: {loaded}")
            number, answer = self.policy_version, await self._ask(adapter, prompt_ids, asked)
        if on_token is not None:
            for token, logprob in zip(answer.token_ids, answer.logprobs, strict=True):
                on_token(token, logprob)
        return Completion(
            answer.token_ids, answer.logprobs, answer.finish_reason, number, answer.cached_tokens
        )

    async def _ask(self, model: str | None, prompt: Sequence[int], params: SamplingParams) -> Sampled:
        async def on(member: Member) -> Sampled:
            assert member.facts is not None
            asked = member.facts.base if model is None else model
            answer = await member.server.sample(asked, prompt, params)
            return check_answer(member.server.url, asked, prompt, params, answer)

        return await self.pool.run(on)

    # -- training ----------------------------------------------------------------------------------------------------

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        """See `Engine.forward_backward`; metrics are defined in docs/engine.md."""
        self.pool.raise_fault()
        return await self.learner.forward_backward(rows, objective)

    async def optim_step(self, *, lr: float, max_grad_norm: float) -> dict[str, float]:
        """See `Engine.optim_step`."""
        return await self.learner.optim_step(lr, max_grad_norm)

    async def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        """Log-probabilities of the trained tokens of each row under the learner's current weights."""
        return await self.learner.score(rows, temperature)

    async def publish(self) -> int:
        """See `Engine.publish`. Requests in flight end with the version they began with."""
        await self._publish(self.policy_version + 1)
        return self.policy_version

    async def _publish(self, number: int) -> None:
        await self.publisher.publish(number)
        self.policy_version = number

    # -- state -------------------------------------------------------------------------------------------------------

    async def save_state(self, folder: Path) -> None:
        """See `Engine.save_state`. The state does not depend on the number of learner processes."""
        await self.learner.save(folder, {"policy_version": self.policy_version})

    async def load_state(self, folder: Path) -> None:
        """See `Engine.load_state`; the loaded weights are published under the saved policy version."""
        extra = await self.learner.load(folder)
        await self._publish(int(extra["policy_version"]))

    async def export_adapter(self, folder: Path) -> None:
        """See `Engine.export_adapter`."""
        await self.learner.export(folder)

    # -- other adapters ----------------------------------------------------------------------------------------------

    async def load_adapter(self, name: str, folder: Path) -> None:
        """See `Engine.load_adapter`. A name that is loaded must be unloaded first."""
        if name == POLICY or name in self.versions.others:
            raise EngineError(f"{name!r} is in use; load the adapter under another name")
        self.versions.others[name] = folder.absolute()
        if not await self.pool.everywhere(lambda server: server.load(name, str(folder.absolute()))):
            await self.pool.available()

    async def unload_adapter(self, name: str) -> None:
        """See `Engine.unload_adapter`."""
        if self.versions.others.pop(name, None) is None:
            raise UnknownAdapterError(f"no adapter is called {name!r}")
        await self.pool.everywhere(lambda server: server.unload(name))

    async def close(self) -> None:
        """See `Engine.close`."""
        self._closed = True
        await leave(self.pool, self.versions)
        await self.pool.close()
        await self.learner.close()
