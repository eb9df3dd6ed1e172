"""From the result of a rollout to an attempt in the journal."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.datasets import DatasetRow
from osmosis_ai.rollout.controller.result import RolloutResult
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_trainer.collect import rollouts
from osmosis_trainer.collect.attempt import Attempt, AttemptKey
from osmosis_trainer.collect.journal import Journal
from osmosis_trainer.collect.rollouts import RolloutRunner, judge
from osmosis_trainer.gateway.trace import SessionTrace
from osmosis_trainer.settings import RunSettings

KEY = AttemptKey("train", 2, 1, 7, 3, 0)


@pytest.mark.parametrize(
    ("result", "calls", "expected"),
    [
        ({"status": "success", "reward": 0.5}, True, ("graded", False, 0.5, None)),
        ({"status": "success", "reward": -1e12}, True, ("graded", False, -1e12, None)),
        ({"status": "success", "reward": 1e300}, True, ("invalid", False, None, "reward_too_large")),
        ({"status": "skipped"}, True, ("skipped", False, None, None)),
        (
            {"status": "invalid", "error_type": "rollout_server_lost"},
            True,
            ("invalid", True, None, "rollout_server_lost"),
        ),
        (
            {"status": "failed", "error_type": "timeout", "failed_in": "agent"},
            True,
            ("failed", False, None, "timeout"),
        ),
        (
            {"status": "failed", "error_type": "agent_error", "failed_in": "agent"},
            False,
            ("invalid", False, None, "agent_error"),
        ),
        (
            {"status": "failed", "error_type": "timeout", "failed_in": "grader"},
            True,
            ("invalid", False, None, "timeout"),
        ),
        (
            {"status": "failed", "error_type": "callback_timeout"},
            True,
            ("invalid", False, None, "callback_timeout"),
        ),
        ({"status": "success", "reward": 1.0}, False, ("invalid", False, None, "no_model_calls")),
    ],
)
def test_what_a_result_says_about_the_policy(
    attempt: Callable[..., Attempt], result: dict[str, Any], calls: bool, expected: tuple[Any, ...]
) -> None:
    trace = attempt().trace if calls else SessionTrace("r", 1)
    judged = judge(KEY, RolloutResult(rollout_id=trace.rollout_id, **result), trace)
    assert (judged.outcome, judged.retry, judged.reward, judged.error_type) == expected
    assert judged.key == KEY


@pytest.mark.parametrize("status", ["failed", "success"])
def test_a_prompt_that_is_too_long_is_skipped(status: Any) -> None:
    trace = SessionTrace("r", 1, refused={"context_length_exceeded": 3})
    result = RolloutResult("r", status, 0.0 if status == "success" else None, failed_in="agent")
    assert judge(KEY, result, trace).outcome == "skipped"


def test_a_rollout_that_runs_out_of_context_later_is_the_policys_doing(
    attempt: Callable[..., Attempt],
) -> None:
    trace = replace(attempt().trace, refused={"context_length_exceeded": 1})
    result = RolloutResult(trace.rollout_id, "failed", error_type="agent_error", failed_in="agent")
    assert judge(KEY, result, trace).outcome == "failed"


@dataclass
class Gateway:
    """Sessions that answer with a ready trace."""

    trace: SessionTrace
    opened: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)

    def open(self, rollout_id: str, **limits: Any) -> None:
        self.opened[rollout_id] = limits

    def close(self, rollout_id: str) -> SessionTrace:
        assert rollout_id in self.opened
        assert rollout_id not in self.closed
        self.closed.append(rollout_id)
        return replace(self.trace, rollout_id=rollout_id)


@dataclass
class Controller:
    """Reports a verdict through the hook, again for as long as the hook fails, as a rollout server does."""

    result: Callable[[str], RolloutResult]
    hook: Any = None
    requests: list[RolloutRunRequest] = field(default_factory=list)
    refused: int = 0
    release: asyncio.Event | None = None

    async def run(self, request: RolloutRunRequest) -> RolloutResult:
        self.requests.append(request)
        if self.release is not None:
            await self.release.wait()
        result = self.result(request.rollout_id)
        while result.status != "invalid":
            try:
                await self.hook(request, result)
                break
            except OSError:
                self.refused += 1
        return result


Parts = tuple[RolloutRunner, Gateway, Controller]


@pytest.fixture
def parts(attempt: Callable[..., Attempt]) -> Parts:
    gateway = Gateway(attempt().trace)
    settings = RunSettings.from_config({"training": {"max_prompt_length": 100}, "advanced": {"seed": 5}})
    row = DatasetRow(7, [{"role": "user", "content": "hi"}], "label", {"a": 1})
    runner = RolloutRunner(gateway, lambda index: row, settings)  # type: ignore[arg-type]
    controller = Controller(lambda rollout_id: RolloutResult(rollout_id, "success", 1.0), runner.store_result)
    return runner, gateway, controller


async def test_the_row_and_the_seed_reach_the_rollout(parts: Parts, tmp_path: Path) -> None:
    runner, gateway, controller = parts
    with Journal(tmp_path, 2) as journal:
        finished = await runner.run(controller, KEY, journal.append)
    [request] = controller.requests
    assert (request.messages, request.label, request.metadata) == (
        [{"role": "user", "content": "hi"}],
        "label",
        {"a": 1},
    )
    assert request.extra_fields == {"row_index": 7, "run_index": 3, "step": 2, "phase": "train", "attempt": 0}
    assert (request.agent_timeout_sec, request.grader_timeout_sec) == (450.0, 150.0)
    limits = gateway.opened[request.rollout_id]
    assert (limits["seed"], limits["max_prompt_tokens"]) == (KEY.seed(5), 100)
    assert gateway.closed == [request.rollout_id] == [finished.rollout_id]


async def test_a_verdict_is_on_disk_before_it_is_acknowledged(parts: Parts, tmp_path: Path) -> None:
    runner, _, controller = parts
    with Journal(tmp_path, 2) as journal:
        seen: list[int] = []

        async def hook(request: RolloutRunRequest, result: RolloutResult) -> None:
            await runner.store_result(request, result)
            seen.append(journal.path.read_bytes().count(b"\n"))

        controller.hook = hook
        await runner.run(controller, KEY, journal.append)
    assert seen == [1]


async def test_a_verdict_that_could_not_be_written_is_taken_again(parts: Parts, tmp_path: Path) -> None:
    runner, gateway, controller = parts
    with Journal(tmp_path, 2) as journal:
        full = iter([True, True, False])

        def append(attempt: Attempt) -> None:
            if next(full):
                raise OSError(errno.ENOSPC, "no space left on device")
            journal.append(attempt)

        finished = await runner.run(controller, KEY, append)
        assert controller.refused == 2
        assert list(journal.finished.values()) == [finished]
    assert len(gateway.closed) == 1


async def test_an_infrastructure_failure_is_written_too(parts: Parts, tmp_path: Path) -> None:
    runner, gateway, controller = parts
    controller.result = lambda rollout_id: RolloutResult(
        rollout_id, "invalid", error_type="rollout_server_lost"
    )
    with Journal(tmp_path, 2) as journal:
        finished = await runner.run(controller, KEY, journal.append)
        assert finished.retry
        assert list(journal.finished) == [KEY]
    assert len(gateway.closed) == 1


async def test_a_late_verdict_of_an_abandoned_attempt_is_dropped(parts: Parts, tmp_path: Path) -> None:
    runner, gateway, controller = parts
    controller.release = asyncio.Event()
    with Journal(tmp_path, 2) as journal:
        running = asyncio.create_task(runner.run(controller, KEY, journal.append))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        [request] = controller.requests
        await runner.store_result(request, RolloutResult(request.rollout_id, "success", 1.0))
        assert journal.finished == {}
    assert gateway.closed == [request.rollout_id]


async def test_a_server_that_never_takes_the_rollout_is_given_up(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, _, controller = parts
    monkeypatch.setattr(rollouts, "ADMISSION_DEADLINE_S", -660.0 + 0.05)
    controller.release = asyncio.Event()
    with Journal(tmp_path, 2) as journal:
        finished = await runner.run(controller, KEY, journal.append)
    assert (finished.outcome, finished.retry, finished.error_type) == ("invalid", True, "admission_timeout")
