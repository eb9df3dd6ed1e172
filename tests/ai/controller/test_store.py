"""The first terminal event wins, is durable before it is acknowledged, and everyone later gets its acknowledgement."""

import asyncio
import logging

import pytest

from osmosis_ai.rollout.controller.store import (
    CallbackStore,
    DuplicateRegistrationError,
    UnknownRolloutIdError,
    duplicate_callback_payload,
)
from osmosis_ai.rollout.types import GraderCompleteRequest, RolloutCompleteRequest, RolloutSample

DONE = RolloutCompleteRequest(status="success")


def graded(reward):
    return GraderCompleteRequest(status="success", sample=RolloutSample(reward=reward))


@pytest.fixture
def commits():
    return []


@pytest.fixture
async def store(commits):
    async def commit(result):
        commits.append(result)
        return {"ok": True, "stored": len(commits)}

    store = CallbackStore(on_terminal_commit=commit)
    await store.register("r")
    return store


async def test_the_grader_ends_a_rollout_and_the_completion_does_not(store, commits):
    assert await store.handle_completion("r", DONE) == {"ok": True}
    assert store.is_open("r")
    assert await store.handle_grader("r", graded(1.0)) == {"ok": True, "stored": 1}
    result = await store.wait_terminal("r")
    assert (result.source, result.completion, result.grader.sample.reward) == ("grader", DONE, 1.0)
    assert not store.is_open("r")
    assert len(commits) == 1


async def test_duplicates_get_the_stored_acknowledgement(store, commits, caplog):
    first = await store.handle_grader("r", graded(1.0))
    assert await store.handle_grader("r", graded(1.0)) == first
    assert "conflicting" not in caplog.text
    assert await store.handle_grader("r", graded(0.0)) == first
    assert "conflicting duplicate" in caplog.text
    assert len(commits) == 1


async def test_acknowledgements_outlive_the_session(store, caplog):
    await store.handle_completion("r", DONE)
    first = await store.handle_grader("r", graded(1.0))
    await store.discard("r")
    assert await store.handle_grader("r", graded(1.0)) == first
    assert await store.handle_completion("r", DONE) == {"ok": True}
    assert "conflicting" not in caplog.text
    await store.handle_grader("r", graded(0.5))
    assert [r.levelno for r in caplog.records if "conflicting duplicate" in r.message] == [logging.ERROR]
    with pytest.raises(DuplicateRegistrationError):
        await store.register("r")


async def test_callbacks_after_the_deadline_are_acknowledged_quietly(caplog):
    store = CallbackStore()
    await store.register("r")
    result = await store.finalize_timeout("r")
    assert result.source == "timeout"
    assert (await store.handle_completion("r", DONE))["error_type"] == "callback_timeout"
    await store.discard("r")
    assert (await store.handle_grader("r", graded(1.0)))["error_type"] == "callback_timeout"
    assert "conflicting" not in caplog.text


async def test_the_deadline_loses_against_a_commit_in_flight(store, commits):
    release, entered = asyncio.Event(), asyncio.Event()

    async def slow(result):
        entered.set()
        await release.wait()
        commits.append(result)

    store._on_terminal_commit = slow
    grading = asyncio.create_task(store.handle_grader("r", graded(0.5)))
    await entered.wait()
    deadline = asyncio.create_task(store.finalize_timeout("r"))
    lost = asyncio.create_task(store.acknowledge_without_commit("r"))
    await asyncio.sleep(0)
    release.set()
    assert (await deadline).source == (await lost).source == "grader"
    assert await grading == {"ok": True}
    assert len(commits) == 1


async def test_a_handler_that_goes_away_does_not_cancel_the_commit(store, commits):
    release, entered = asyncio.Event(), asyncio.Event()

    async def slow(result):
        entered.set()
        await release.wait()
        commits.append(result)

    store._on_terminal_commit = slow
    grading = asyncio.create_task(store.handle_grader("r", graded(0.5)))
    await entered.wait()
    grading.cancel()
    await store.discard("r")
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await grading
    assert await store.handle_grader("r", graded(0.5)) == {"ok": True}
    assert len(commits) == 1


async def test_a_failed_commit_is_seen_by_all_and_tried_again(store):
    attempts = []

    async def failing(result):
        attempts.append(result)
        await asyncio.sleep(0)
        if len(attempts) == 1:
            raise OSError("disk full")

    store._on_terminal_commit = failing
    outcomes = await asyncio.gather(
        *(store.handle_grader("r", graded(1.0)) for _ in range(3)), return_exceptions=True
    )
    assert [type(o) for o in outcomes] == [OSError, OSError, OSError]
    assert store.is_open("r")
    assert await store.handle_grader("r", graded(1.0)) == {"ok": True}
    assert len(attempts) == 2


async def test_discarding_an_open_rollout_makes_it_unknown(store):
    waiting = asyncio.create_task(store.wait_terminal("r"))
    await asyncio.sleep(0)
    await store.discard("r")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(UnknownRolloutIdError, match="'r'"):
        await store.handle_grader("r", graded(1.0))


async def test_payloads_are_compared_as_json():
    assert duplicate_callback_payload(graded(1.0), graded(1))
    assert not duplicate_callback_payload(graded(1.0), graded(0.9))
    assert duplicate_callback_payload({"a": [1]}, {"a": [1]})
