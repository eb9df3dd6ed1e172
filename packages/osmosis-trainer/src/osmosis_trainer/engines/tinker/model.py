"""One model in training on the server: a session with its heartbeat, an adapter, and the verbs that change it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from osmosis_trainer.deadline import DeadlineError
from osmosis_trainer.engines.tinker.errors import RequestLostError, ServerError
from osmosis_trainer.engines.tinker.futures import accepted, result, submit
from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.engines.tinker.lease import Lease
from osmosis_trainer.engines.tinker.settings import TinkerSettings
from osmosis_trainer.engines.tinker.wire import scored_datum, scores
from osmosis_trainer.errors import EngineError

logger = logging.getLogger(__name__)

_HEARTBEAT_S = 10.0
_UNLOAD_S = 60.0
_CLIENT = "osmosis-trainer"


@dataclass(frozen=True, slots=True)
class Adam:
    """One step of AdamW. `max_grad_norm` 0 does not clip."""

    lr: float
    max_grad_norm: float
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8


class RemoteModel:
    """See the module. Made by `create`; requests of one model are numbered, so that a server can order them."""

    def __init__(
        self, transport: Transport, settings: TinkerSettings, lease: Lease, session_id: str, model_id: str
    ) -> None:
        self.model_id = model_id
        self._transport = transport
        self._settings = settings
        self._session_id = session_id
        self._seq_id = 0
        self._lease = lease
        self._heart = asyncio.create_task(self._beat())

    @classmethod
    async def create(cls, transport: Transport, settings: TinkerSettings, lease: Lease) -> RemoteModel:
        """A new session with a fresh adapter on every linear layer but the head. Raises ServerError."""
        session = {
            "tags": [_CLIENT],
            "user_metadata": {},
            "sdk_version": "0.10.0",
            "type": "create_session",
        }
        opened = accepted(await transport.post("create_session", session), "create_session")
        lora = {
            "rank": settings.rank,
            "seed": settings.seed % (2**31 - 1),
            "train_attn": True,
            "train_mlp": True,
            "train_unembed": False,
        }
        body = {
            "session_id": opened["session_id"],
            "model_seq_id": 0,
            "base_model": settings.base_model,
            "lora_config": lora,
            "user_metadata": {},
            "type": "create_model",
        }
        what = f"creating a model of {settings.base_model}"
        pending = await submit(transport, "create_model", body, repeatable=False)
        made = await result(transport, pending["request_id"], what, settings.result_s)
        lease.add(made["model_id"])
        return cls(transport, settings, lease, opened["session_id"], made["model_id"])

    async def _beat(self) -> None:
        """Keep the session alive; a server that misses the heartbeat unloads the model, which the next request finds."""
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            body = {"session_id": self._session_id, "type": "session_heartbeat"}
            with suppress(EngineError):
                await self._transport.post("session_heartbeat", body, patience_s=0.0)

    async def abandon(self) -> None:
        """Stop the heartbeat; the model is not touched."""
        self._heart.cancel()
        await asyncio.gather(self._heart, return_exceptions=True)

    async def unload(self) -> None:
        """Give the model's place on the server back; a server that cannot do so lets it expire."""
        await self.abandon()
        await unload(self._transport, self._lease, self.model_id)

    # -- passes ------------------------------------------------------------------------------------------------------

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability, in nats, of every token but the first of each sequence under the weights in training."""
        body = {"data": [scored_datum(tokens) for tokens in sequences], "loss_fn": "cross_entropy"}
        answer = await self._run("forward", "a forward pass", repeatable=True, forward_input=body)
        return scores(answer, [len(tokens) - 1 for tokens in sequences], "a forward pass")

    async def train(self, batches: Sequence[Sequence[dict[str, Any]]], adam: Adam) -> dict[str, float]:
        """One optimizer step on the gradient of the loss `importance_sampling` over all datums.

        Returns what the server measured. Any error means that the step may have been done in part: RequestLostError.
        """
        body = {"loss_fn": "importance_sampling"}
        # Handed in together, so that a server that works in rounds needs one round for all.
        pending = [
            await self._submit("forward_backward", forward_backward_input={"data": list(datums), **body})
            for datums in batches
        ]
        params = {
            "learning_rate": adam.lr,
            "beta1": adam.beta1,
            "beta2": adam.beta2,
            "eps": adam.eps,
            "weight_decay": adam.weight_decay,
            "grad_clip_norm": adam.max_grad_norm,
        }
        last = await self._submit("optim_step", adam_params=params, type="optim_step")
        try:
            for request_id in pending:
                await self._wait(request_id, "a backward pass")
            answer = await self._wait(last, "an optimizer step")
        except ServerError as error:
            raise RequestLostError(str(error)) from error
        return dict(answer.get("metrics") or {})

    # -- weights -----------------------------------------------------------------------------------------------------

    async def save(self, name: str) -> str:
        """Keep weights and optimizer on the server under `name`; returns their `tinker://` path."""
        return await self._save("save_weights", name)

    async def save_for_sampler(self, name: str) -> str:
        """Keep the weights for sampling under `name`, which must be new; returns their `tinker://` path."""
        return await self._save("save_weights_for_sampler", name)

    async def _save(self, verb: str, name: str) -> str:
        answer = await self._run(verb, f"saving the weights {name}", path=name, type=verb)
        return str(answer["path"])

    async def load(self, path: str) -> None:
        """Restore weights and optimizer from a path that `save` returned."""
        await self._run("load_weights", f"loading {path}", path=path, optimizer=True, type="load_weights")

    async def _run(self, verb: str, what: str, *, repeatable: bool = False, **fields: Any) -> dict[str, Any]:
        return await self._wait(await self._submit(verb, repeatable=repeatable, **fields), what)

    async def _submit(self, verb: str, *, repeatable: bool = False, **fields: Any) -> str:
        self._seq_id += 1
        body = {"model_id": self.model_id, "seq_id": self._seq_id, **fields}
        answer = await submit(self._transport, verb, body, repeatable=repeatable)
        return str(answer["request_id"])

    async def _wait(self, request_id: str, what: str) -> dict[str, Any]:
        return await result(self._transport, request_id, what, self._settings.result_s)


async def unload(transport: Transport, lease: Lease, model_id: str) -> None:
    """Give a model's place on the server back. A server that fails at it, or cannot do it, lets the model expire."""
    try:
        body = {"model_id": model_id, "type": "unload_model"}
        response = await transport.post("unload_model", body, patience_s=0.0)
        if response.is_success:
            await result(transport, response.json()["request_id"], "unloading the model", _UNLOAD_S)
    except (EngineError, DeadlineError) as error:
        logger.warning("the model %s was not unloaded: %s", model_id, error)
    lease.drop(model_id)
