"""The routes of the rollout server."""

import uuid
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request, Response

from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.server.lifecycle import RolloutTasks
from osmosis_ai.rollout.server.polling import (
    PolledRollout,
    PolledRollouts,
    UnknownRolloutError,
    WrongLeaseError,
)
from osmosis_ai.rollout.server.request_body import read_json, validate
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.protocol import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    CancelRolloutsResponse,
    PolledRolloutRequest,
    PolledRolloutResponse,
    RolloutInitRequest,
    RolloutResultResponse,
    RolloutStatusResponse,
)

INSTANCE_ID_HEADER = "x-osmosis-rollout-instance-id"
RETRY_AFTER_SEC = "5"

Run = Coroutine[Any, Any, None]


class RolloutRoutes:
    """Answers the requests of controllers. What a rollout does and how it is reported is in the two ``handle_*`` functions."""

    def __init__(
        self,
        backend: ExecutionBackend,
        tasks: RolloutTasks,
        polled: PolledRollouts,
        *,
        handle_called_back: Callable[[RolloutInitRequest], Run],
        handle_polled: Callable[[PolledRolloutRequest, PolledRollout], Run],
        instance_id: str | None,
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._polled = polled
        self._handle_called_back = handle_called_back
        self._handle_polled = handle_polled
        self._instance_id = instance_id
        self._process_id = uuid.uuid4().hex

    def add_to(self, app: FastAPI) -> None:
        """Mount them."""
        app.post(
            "/rollout", status_code=202, openapi_extra=_body_of(RolloutInitRequest, PolledRolloutRequest)
        )(self.start)
        app.get("/rollout/{rollout_id}/status")(self.status)
        app.get("/rollout/{rollout_id}/result", response_model=RolloutResultResponse)(self.result)
        app.post("/rollout/cancel", openapi_extra=_body_of(CancelRolloutsRequest))(self.cancel)
        app.get("/health")(self.health)

    async def start(self, request: Request) -> Response:
        """Run a rollout in the background."""
        return Response(self.admit(await read_json(request)), 202, media_type="application/json")

    def admit(self, body: dict[str, Any]) -> bytes:
        """Start the rollout that the body asks for, and the answer. Raises what refuses it, before anything has happened."""
        # Without an id there is nothing to poll for: such a body lacks its callback URL.
        if (
            body.get("rollout_id") is None
            or "completion_callback_url" in body
            or body.get("grader_callback_url")
        ):
            called_back = validate(RolloutInitRequest, body)
            self._check_admission()
            self._schedule(self._handle_called_back(called_back))
            return b"{}"
        return self._start_polled(validate(PolledRolloutRequest, body))

    def _start_polled(self, request: PolledRolloutRequest) -> bytes:
        rollout_id = request.rollout_id
        self._check_admission(polled_id=rollout_id)
        rollout = self._polled.open(rollout_id)
        try:
            task = self._schedule(self._handle_polled(request, rollout))
        except HTTPException:
            self._polled.forget(rollout)
            raise
        self._polled.run_by(rollout, task)
        answer = PolledRolloutResponse(
            rollout_id=rollout_id,
            polling_lease_token=rollout.token,
            result_wait_timeout_sec=self._polled.rules.wait_sec,
            polling_lease_timeout_sec=self._polled.rules.lease_sec,
        )
        return answer.model_dump_json().encode()

    def _check_admission(self, *, polled_id: str | None = None) -> None:
        if not self._tasks.accepting:
            raise HTTPException(503, "the rollout server is shutting down")
        if polled_id is not None and polled_id in self._polled:
            raise HTTPException(409, f"rollout {polled_id!r} is already registered; use a fresh id")
        if not self._backend.has_capacity():
            raise HTTPException(
                429, "rollout queue is full; retry later", headers={"Retry-After": RETRY_AFTER_SEC}
            )

    def _schedule(self, rollout: Run) -> Any:
        # Started before the answer is written, so that a dropped connection cannot lose an accepted rollout.
        try:
            return self._tasks.start(rollout)
        except Exception as error:
            rollout.close()
            raise HTTPException(500, f"the rollout could not be scheduled: {error}") from error

    async def status(self, rollout_id: str) -> RolloutStatusResponse:
        """Where a rollout is, as far as the backend tracks it."""
        known = self._backend.rollout_status(rollout_id)
        if known is None:
            known = {"status": self._polled.status(rollout_id) or RolloutStatus.UNKNOWN}
        return RolloutStatusResponse(**{**known, "rollout_id": rollout_id})

    async def result(
        self, rollout_id: str, lease: Annotated[str, Header(alias=POLLING_LEASE_HEADER)]
    ) -> Response:
        """Wait for the result of a polled rollout, or for news of it."""
        try:
            rollout = self._polled.leased(rollout_id, lease)
        except UnknownRolloutError:
            raise HTTPException(404, f"no polled rollout {rollout_id!r} is known") from None
        except WrongLeaseError:
            raise HTTPException(403, "the polling lease token is wrong") from None
        self._ask_backend(rollout)
        return Response(await rollout.news(), media_type="application/json")

    def _ask_backend(self, rollout: PolledRollout) -> None:
        known = self._backend.rollout_status(rollout.rollout_id)
        if known is not None and known["status"] in (RolloutStatus.RUNNING, RolloutStatus.GRADING):
            rollout.status_changed(RolloutStatus(known["status"]))

    async def cancel(self, request: Request) -> CancelRolloutsResponse:
        """Cancel rollouts and say what became of each."""
        chosen = validate(CancelRolloutsRequest, await read_json(request))
        if (chosen.ids is not None) + (chosen.prefix is not None) + chosen.all != 1:
            raise HTTPException(422, "give exactly one of 'ids', 'prefix' and 'all': true")
        polled = self._polled.cancel(chosen.ids, chosen.prefix, chosen.all)
        others = self._backend.cancel_rollouts(ids=chosen.ids, prefix=chosen.prefix, all=chosen.all)
        # A controller that polls expects every id in the answer; without one, a backend that cannot cancel stays silent.
        unknown = dict.fromkeys(chosen.ids or (), "not_found") if self._polled.used else {}
        return CancelRolloutsResponse(dispositions={**unknown, **others, **polled})

    async def health(self, response: Response) -> dict[str, Any]:
        """The backend's health, and which server this is."""
        body = dict(self._backend.health())
        if self._instance_id is not None:
            response.headers[INSTANCE_ID_HEADER] = self._instance_id
            body["instance_id"] = self._instance_id
        if self._polled.used:
            body["process_id"] = self._process_id
            body["instance_id"] = self._instance_id or self._process_id
            body["lifecycle"] = {
                "accepting_rollouts": self._tasks.accepting,
                "active_rollouts": len(self._tasks),
            }
        return body


def _body_of(*models: Any) -> dict[str, Any]:
    """The request body's part of the OpenAPI document: the bodies are read and checked by hand."""
    schemas = [model.model_json_schema() for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
