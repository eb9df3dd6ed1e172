"""What the controller has been told of one rollout, so that it is told each thing once."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from osmosis_ai.rollout.server.auth import ControllerAuth
from osmosis_ai.rollout.server.payloads import (
    INTERNAL_ERROR,
    UNGRADED,
    completion_payload,
    grader_payload,
    warn_of_minimal_sample,
)
from osmosis_ai.rollout.trajectory.report import TrajectoryReport, report_from_response
from osmosis_ai.rollout.types.execution import ExecutionResult
from osmosis_ai.rollout.types.protocol import RolloutInitRequest

logger = logging.getLogger(__name__)

PostJson = Callable[..., Awaitable[Any]]


class CallbackDelivery:
    """Posts the completion, then the grader callback, each until the controller has acknowledged it once.

    Keeps the latest trajectory report found in an acknowledgement.
    """

    def __init__(self, request: RolloutInitRequest, rollout_id: str, post_json: PostJson) -> None:
        self._request = request
        self._rollout_id = rollout_id
        self._post_json = post_json
        self._headers = ControllerAuth(request.controller_api_key).as_bearer_headers()
        self._completion_acknowledged = False
        self._grader_acknowledged = request.grader_callback_url is None
        self.report: TrajectoryReport | None = None

    async def completion(self, result: ExecutionResult) -> None:
        """Report the end of the workflow. Raises what the delivery raises; nothing is sent twice after an acknowledgement."""
        if self._completion_acknowledged:
            return
        await self._post(self._request.completion_callback_url, completion_payload(self._rollout_id, result))
        self._completion_acknowledged = True

    async def grader(self, result: ExecutionResult) -> None:
        """Report the graded sample, if the controller asked for it; see :meth:`completion`."""
        url = self._request.grader_callback_url
        if url is None or self._grader_acknowledged:
            return
        try:
            await self._post(url, grader_payload(self._rollout_id, result))
        except (TypeError, ValueError, RecursionError) as error:
            warn_of_minimal_sample(self._rollout_id, error)
            await self._post(url, grader_payload(self._rollout_id, result, minimal=True))
        self._grader_acknowledged = True

    async def crashed(self) -> None:
        """After the backend raised: close whatever is still open. Delivery errors are logged; nobody is left to handle them."""
        for deliver, result in ((self.completion, INTERNAL_ERROR), (self.grader, UNGRADED)):
            try:
                await deliver(result)
            except Exception:
                logger.exception("Could not report the failure of rollout %s", self._rollout_id)

    async def _post(self, url: str, payload: dict[str, Any]) -> None:
        response = await self._post_json(url=url, payload=payload, headers=self._headers)
        self.report = report_from_response(response) or self.report
