"""Open rollouts and the callbacks that end them.

The rule of the store: the first terminal event of a rollout wins, it is made durable before it is acknowledged, and every
later callback gets the stored acknowledgement. A rollout server that is refused reports a failure instead of the
success it just had, so a well-formed callback is never refused because it comes twice or late.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel

from osmosis_ai.rollout.types import GraderCompleteRequest, RolloutCompleteRequest

logger = logging.getLogger(__name__)

Acknowledgment = dict[str, Any]
TerminalSource = Literal["grader", "timeout", "cancelled"]


class DuplicateRegistrationError(ValueError):
    """The rollout id is in use or was used before in this process."""


class UnknownRolloutIdError(KeyError):
    """No rollout with this id is open or has ended here."""

    def __str__(self) -> str:
        return f"unknown rollout id {self.args[0]!r}"


@dataclass(frozen=True, slots=True)
class TerminalCallbackResult:
    """How a rollout ended: the grader's verdict, the controller's own deadline, or a cancellation."""

    rollout_id: str
    source: TerminalSource
    completion: RolloutCompleteRequest | None = None
    grader: GraderCompleteRequest | None = None
    acknowledgment: Acknowledgment = field(default_factory=lambda: {"ok": True})


CommitHook = Callable[[TerminalCallbackResult], Awaitable[Mapping[str, Any] | None]]
CompletionHook = Callable[[str], Mapping[str, Any] | None]


@dataclass(slots=True, eq=False)
class _Session:
    rollout_id: str
    ended: asyncio.Future[TerminalCallbackResult]
    completion: RolloutCompleteRequest | None = None
    completion_ack: Acknowledgment | None = None
    commit: asyncio.Task[TerminalCallbackResult] | None = None
    terminal: TerminalCallbackResult | None = None
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class _Finished:
    """What is kept of an ended rollout for the life of the process."""

    acknowledgment: Acknowledgment
    source: TerminalSource
    grader: Any
    completion: Any


def duplicate_callback_payload(first: Any, second: Any) -> bool:
    """Whether two callback payloads say the same thing: equal as JSON."""
    return bool(_as_json(first) == _as_json(second))


def _as_json(payload: Any) -> Any:
    return payload.model_dump(mode="json") if isinstance(payload, BaseModel) else payload


def _fingerprint(payload: BaseModel | None) -> int | None:
    """Enough to recognise a duplicate after the payload itself is gone."""
    return None if payload is None else hash(payload.model_dump_json())


class CallbackStore:
    """Sessions of rollouts, from registration to the first terminal event.

    ``on_terminal_commit`` makes a terminal result durable. It runs at most once at a time per rollout and is never
    cancelled by a waiter that goes away; the mapping it returns becomes the acknowledgement. When it raises, every
    caller that waits for it sees the exception, the rollout stays open and the next terminal event tries again.
    ``on_completion`` may add keys (``trajectory``) to the acknowledgement of the completion callback.
    """

    def __init__(
        self, *, on_terminal_commit: CommitHook | None = None, on_completion: CompletionHook | None = None
    ) -> None:
        self._on_terminal_commit = on_terminal_commit
        self._on_completion = on_completion
        self._sessions: dict[str, _Session] = {}
        self._finished: dict[str, _Finished] = {}

    def is_open(self, rollout_id: str) -> bool:
        """Whether the rollout is registered and has not ended."""
        session = self._sessions.get(rollout_id)
        return session is not None and session.terminal is None

    async def register(self, rollout_id: str) -> None:
        """Open a session; do it before the rollout is posted, callbacks may overtake the answer.

        Raises :class:`DuplicateRegistrationError` for an id that is open or has ended.
        """
        if rollout_id in self._sessions or rollout_id in self._finished:
            raise DuplicateRegistrationError(
                f"rollout id {rollout_id!r} is already registered; use a fresh id for every attempt"
            )
        ended = asyncio.get_running_loop().create_future()
        self._sessions[rollout_id] = _Session(rollout_id, ended)

    async def discard(self, rollout_id: str) -> None:
        """Forget the session. Waiters are cancelled; a commit in flight runs to its end and its answer is kept."""
        session = self._sessions.get(rollout_id)
        if session is None:
            return
        session.discarded = True
        if session.commit is None:
            self._drop(session)
        if not session.ended.done():
            session.ended.cancel()

    def _drop(self, session: _Session) -> None:
        self._sessions.pop(session.rollout_id, None)
        if session.terminal is not None:
            self._finished[session.rollout_id] = _Finished(
                session.terminal.acknowledgment,
                session.terminal.source,
                _fingerprint(session.terminal.grader),
                _fingerprint(session.completion),
            )

    async def wait_terminal(self, rollout_id: str) -> TerminalCallbackResult:
        """Wait for the end of the rollout. Cancelled when the session is discarded first."""
        session = self._open_session(rollout_id)
        return await asyncio.shield(session.ended)

    async def handle_completion(self, rollout_id: str, payload: RolloutCompleteRequest) -> Acknowledgment:
        """Store the workflow's verdict. It never ends a rollout: grading starts after this acknowledgement."""
        finished = self._finished.get(rollout_id)
        if finished is not None:
            if finished.source == "grader" and finished.completion not in (None, _fingerprint(payload)):
                logger.error("conflicting duplicate completion callback for rollout %s", rollout_id)
            return {"ok": True} if finished.source == "grader" else dict(finished.acknowledgment)
        session = self._open_session(rollout_id)
        if session.terminal is not None and session.terminal.source != "grader":
            return dict(session.terminal.acknowledgment)
        if session.completion is None:
            session.completion = payload
            extra = self._on_completion(rollout_id) if self._on_completion else None
            session.completion_ack = {"ok": True, **(extra or {})}
        elif not duplicate_callback_payload(session.completion, payload):
            logger.error("conflicting duplicate completion callback for rollout %s", rollout_id)
        return dict(session.completion_ack or {"ok": True})

    async def handle_grader(self, rollout_id: str, payload: GraderCompleteRequest) -> Acknowledgment:
        """Commit the grader's verdict and return the acknowledgement of whatever ended the rollout first."""
        finished = self._finished.get(rollout_id)
        if finished is not None:
            if finished.source == "grader" and finished.grader != _fingerprint(payload):
                logger.error("conflicting duplicate grader callback for rollout %s", rollout_id)
            return dict(finished.acknowledgment)
        session = self._open_session(rollout_id)
        candidate = TerminalCallbackResult(rollout_id, "grader", session.completion, payload)
        winner = await self._end(session, candidate)
        conflict = winner.source == "grader" and not duplicate_callback_payload(winner.grader, payload)
        if conflict:
            logger.error("conflicting duplicate grader callback for rollout %s", rollout_id)
        return dict(winner.acknowledgment)

    async def finalize_timeout(
        self, rollout_id: str, *, acknowledgment: Mapping[str, Any] | None = None
    ) -> TerminalCallbackResult:
        """End the rollout as timed out and commit that, unless something else ended it first."""
        session = self._open_session(rollout_id)
        ack = dict(acknowledgment or {"ok": True, "error_type": "callback_timeout"})
        candidate = TerminalCallbackResult(rollout_id, "timeout", session.completion, None, ack)
        return await self._end(session, candidate)

    async def acknowledge_without_commit(
        self,
        rollout_id: str,
        *,
        source: TerminalSource = "cancelled",
        acknowledgment: Mapping[str, Any] | None = None,
    ) -> TerminalCallbackResult:
        """End the rollout without making it durable; a commit already in flight still wins."""
        session = self._open_session(rollout_id)
        while session.commit is not None and session.terminal is None:
            try:
                return await asyncio.shield(session.commit)
            except Exception as error:
                logger.warning("commit of rollout %s failed while it was ended: %r", rollout_id, error)
        if session.terminal is None:
            ack = dict(acknowledgment or {"ok": True})
            self._settle(session, TerminalCallbackResult(rollout_id, source, session.completion, None, ack))
        assert session.terminal is not None
        return session.terminal

    def _open_session(self, rollout_id: str) -> _Session:
        session = self._sessions.get(rollout_id)
        if session is None or (session.discarded and session.commit is None):
            raise UnknownRolloutIdError(rollout_id)
        return session

    async def _end(self, session: _Session, candidate: TerminalCallbackResult) -> TerminalCallbackResult:
        if session.terminal is not None:
            return session.terminal
        if session.commit is None:
            session.commit = asyncio.create_task(self._commit(session, candidate))
            # Everyone who waited may be gone by the time it fails; the failure is theirs to see, not the loop's.
            session.commit.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(session.commit)

    async def _commit(self, session: _Session, candidate: TerminalCallbackResult) -> TerminalCallbackResult:
        try:
            stored = await self._on_terminal_commit(candidate) if self._on_terminal_commit else None
        except BaseException:
            session.commit = None
            if session.discarded:
                self._drop(session)
            raise
        if stored is not None:
            candidate = replace(candidate, acknowledgment=dict(stored))
        self._settle(session, candidate)
        return candidate

    def _settle(self, session: _Session, result: TerminalCallbackResult) -> None:
        session.terminal = result
        session.commit = None
        if not session.ended.done():
            session.ended.set_result(result)
        if session.discarded:
            self._drop(session)
