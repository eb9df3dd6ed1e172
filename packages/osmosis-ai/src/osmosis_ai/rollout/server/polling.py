"""Rollouts whose controller fetches the result (protocol generation C), under a lease that each request renews."""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from osmosis_ai.rollout.server.payloads import result_body
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionResult

logger = logging.getLogger(__name__)

_OPEN = (RolloutStatus.QUEUED, RolloutStatus.RUNNING, RolloutStatus.GRADING)


class UnknownRolloutError(Exception):
    """No polled rollout has this id, or its result is no longer kept."""


class WrongLeaseError(Exception):
    """The token is not that of the rollout's lease."""


@dataclass(frozen=True, slots=True)
class PollingRules:
    """Seconds: how long a poll waits for news, how long a lease lasts without a poll, how long a result is kept."""

    wait_sec: float = 30.0
    lease_sec: float = 120.0
    retention_sec: float = 900.0

    def __post_init__(self) -> None:
        if not 0 < self.wait_sec < self.lease_sec:
            raise ValueError(
                f"polling_lease_timeout_sec ({self.lease_sec}) must exceed result_wait_timeout_sec ({self.wait_sec}), "
                "and both must be positive: a lease that ends during a poll cannot be renewed"
            )
        if not self.retention_sec > 0:
            raise ValueError(f"result_retention_sec must be positive, got {self.retention_sec}")


class PolledRollout:
    """One polled rollout: where it is, and its result as soon as there is one. The first end of it counts."""

    def __init__(self, rollout_id: str, rules: PollingRules) -> None:
        self.rollout_id = rollout_id
        self.token = secrets.token_urlsafe(32)
        self.status = RolloutStatus.QUEUED
        self.body = b""
        self.task: asyncio.Task[None] | None = None
        self._rules = rules
        self._told = RolloutStatus.QUEUED
        self._news = asyncio.Event()
        self._lease_ends = 0.0
        self._lease_timer: asyncio.TimerHandle | None = None
        self.renew()

    @property
    def ended(self) -> bool:
        """Whether the result is there."""
        return self.status not in _OPEN

    def status_changed(self, status: RolloutStatus) -> None:
        """The rollout goes on to this status; it never goes back to an earlier one."""
        if not self.ended and status in _OPEN[_OPEN.index(self.status) + 1 :]:
            self.status = status
            self._announce()

    def end(self, result: ExecutionResult, *, category: str | None = None) -> None:
        """The rollout is over, with the result as its sample and reason; nothing happens if it was over before.

        ``category`` stands in for the result's own where the protocol has one that results do not.
        """
        if self.ended:
            return
        self.body = result_body(self.rollout_id, result, category=category)
        self.status = result.status
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._announce()

    def cancel(self) -> None:
        """End it as cancelled and stop its code."""
        self.end(ExecutionResult(status=RolloutStatus.CANCELLED, err_message="the rollout was cancelled"))
        self._stop()

    def crash(self, message: str) -> None:
        """End it as a failure that says nothing of the agent."""
        self.end(
            ExecutionResult(status=RolloutStatus.FAILURE, err_message=message), category="internal_error"
        )

    async def news(self) -> bytes:
        """The result, or the status as soon as it is another than the last poll was told, or the poll has waited long enough."""
        self.renew()
        if not self.ended and self.status == self._told:
            try:
                async with asyncio.timeout(self._rules.wait_sec):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._told = self.status
        self.renew()
        return self.body if self.ended else result_body(self.rollout_id, ExecutionResult(status=self.status))

    def renew(self) -> None:
        """Somebody still wants the result."""
        loop = asyncio.get_running_loop()
        self._lease_ends = loop.time() + self._rules.lease_sec
        if self._lease_timer is None:
            self._lease_timer = loop.call_at(self._lease_ends, self._check_lease)

    def _check_lease(self) -> None:
        loop = asyncio.get_running_loop()
        if self.ended:
            return
        if loop.time() < self._lease_ends:
            self._lease_timer = loop.call_at(self._lease_ends, self._check_lease)
            return
        message = f"the polling lease expired: nobody asked for the result within {self._rules.lease_sec:g} s"
        logger.warning("Rollout %s is stopped: %s", self.rollout_id, message)
        self.end(ExecutionResult(status=RolloutStatus.FAILURE, err_message=message), category="lease_expired")
        self._stop()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


class PolledRollouts:
    """The polled rollouts of one server: those that run, and those whose result is still kept."""

    def __init__(self, rules: PollingRules) -> None:
        self.rules = rules
        self.used = False
        """Whether a controller has polled here. Some answers differ between the generations of the protocol."""
        self._rollouts: dict[str, PolledRollout] = {}

    def __contains__(self, rollout_id: str) -> bool:
        """Whether the id belongs to a rollout that runs or whose result is still kept."""
        return rollout_id in self._rollouts

    def open(self, rollout_id: str) -> PolledRollout:
        """A new rollout under an id that no other one has."""
        self.used = True
        rollout = self._rollouts[rollout_id] = PolledRollout(rollout_id, self.rules)
        return rollout

    def run_by(self, rollout: PolledRollout, task: asyncio.Task[None]) -> None:
        """The task that executes the rollout. Its result is kept until some time after the task is over."""
        rollout.task = task
        task.add_done_callback(lambda task: self._task_ended(rollout, task))

    def forget(self, rollout: PolledRollout) -> None:
        """Drop the rollout."""
        self._rollouts.pop(rollout.rollout_id, None)

    def status(self, rollout_id: str) -> RolloutStatus | None:
        """Where a polled rollout is, None for others."""
        rollout = self._rollouts.get(rollout_id)
        return None if rollout is None else rollout.status

    def leased(self, rollout_id: str, token: str) -> PolledRollout:
        """The rollout of that lease. Raises :class:`UnknownRolloutError` and :class:`WrongLeaseError`."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            raise UnknownRolloutError(rollout_id)
        if not hmac.compare_digest(token.encode(), rollout.token.encode()):
            raise WrongLeaseError(rollout_id)
        return rollout

    def cancel(self, ids: Sequence[str] | None, prefix: str | None, all: bool) -> dict[str, str]:
        """Cancel the selected rollouts; what became of each of them, and of the named ones that are over."""
        named = set(ids or ())
        chosen = [
            rollout
            for rollout_id, rollout in self._rollouts.items()
            if all or rollout_id in named or (prefix is not None and rollout_id.startswith(prefix))
        ]
        dispositions: dict[str, str] = {}
        for rollout in chosen:
            if rollout.ended:
                if rollout.rollout_id in named:
                    dispositions[rollout.rollout_id] = "not_found"
                continue
            started = rollout.status != RolloutStatus.QUEUED
            dispositions[rollout.rollout_id] = "cancelled_running" if started else "cancelled_queued"
            rollout.cancel()
        return dispositions

    def _task_ended(self, rollout: PolledRollout, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            rollout.cancel()
        else:
            rollout.crash("the backend ended without a result")
        asyncio.get_running_loop().call_later(self.rules.retention_sec, self.forget, rollout)
