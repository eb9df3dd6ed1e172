"""The stream of changes: ids only, of the workspace only, as long as the person may look, without asking the database in turns."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event

from osmosis_platform.accounts import sessions
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import RateLimited, Unavailable
from osmosis_platform.live import hub as hubs
from osmosis_platform.live.hub import Change, LiveHub, Stream
from osmosis_platform.runs.models import LogLine, Run, RunMetric
from osmosis_platform.runs.service import log
from osmosis_platform.runs.upsert import insert_missing
from osmosis_platform.workspaces.models import Membership

DEADLINE = 30.0


def add_run(platform: Platform, workspace_id: str, user_id: str, kind: str = "train") -> str:
    with platform.database.write() as session:
        run = Run(
            workspace_id=workspace_id, kind=kind, name=f"{kind}-run", status="running", creator_id=user_id, rollout_name="r",
            entrypoint="main.py", commit_sha="0" * 40, model_path="a/b", config={}, started_at=utc_now(),
        )  # fmt: skip
        session.add(run)
        session.flush()
        return run.id


def in_loop(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(story(), 4 * DEADLINE)

    asyncio.run(limited())


async def told(stream: Stream) -> set[Change | None]:
    found = await stream.next(DEADLINE)
    assert found or stream.ended, "nothing was told"
    return found


@pytest.fixture
def hub(platform: Platform) -> LiveHub:
    return platform.live


@pytest.fixture
def join(platform: Platform, town: Any, hub: LiveHub) -> Callable[[str], Stream]:
    def join(name: str) -> Stream:
        user = getattr(town, name).user
        with platform.database.write() as session:
            signed = sessions.start_session(session, user, 1)
        workspace = town.other if name == "eve" else town.acme
        return hub.join(signed.session.id, user.id, workspace.id)

    return join


def test_every_kind_of_write_is_told_to_its_workspace_alone(
    platform: Platform, town: Any, join: Callable[[str], Stream]
) -> None:
    run_id = add_run(platform, town.acme.id, town.ada.user.id)
    point = {"run_id": run_id, "key": "loss", "step": 1, "value": 0.5, "timestamp": utc_now()}
    line = {"owner_id": run_id, "event_id": "e", "timestamp": utc_now(), "message": "m", "details": None}

    def changed(session: Any) -> None:
        session.get_one(Run, run_id).current_step = 7

    writes: list[Callable[[Any], None]] = [
        changed,
        lambda session: log(session, run_id, "line"),
        lambda session: insert_missing(session, RunMetric, [point]),
        lambda session: insert_missing(session, LogLine, [{**line, "level": "info", "step": ""}]),
    ]

    async def story() -> None:
        mine, foreign = join("max"), join("eve")
        await told(mine)  # the sign-in of eve, which removes sessions that have ended
        for write in writes:
            with platform.database.write() as session:
                write(session)
            assert await told(mine) == {Change("train", run_id)}
        with platform.database.write() as session:
            dataset = Dataset(
                workspace_id=town.other.id,
                creator_id=town.eve.user.id,
                name="d",
                extension="jsonl",
                file_size=1,
            )
            session.add(dataset)
        while Change("dataset", dataset.id) not in (found := await told(foreign)):
            assert found == {None}
        assert mine.changes == set()

    in_loop(story)


def test_what_was_rolled_back_or_only_read_is_not_told(platform: Platform, town: Any, join: Any) -> None:
    run_id = add_run(platform, town.acme.id, town.ada.user.id)

    async def story() -> None:
        stream = join("max")
        with pytest.raises(ZeroDivisionError):
            write_and_fail(platform, run_id)
        with platform.database.write() as session:
            session.get_one(Run, run_id).status = "running"  # as it is
        with platform.database.write() as session:
            other = add_run_in(session, town)
        assert await told(stream) == {Change("eval", other)}

    in_loop(story)


def write_and_fail(platform: Platform, run_id: str) -> None:
    with platform.database.write() as session:
        log(session, run_id, "never")
        session.flush()
        _ = 1 / 0


def add_run_in(session: Any, town: Any) -> str:
    run = Run(
        workspace_id=town.acme.id, kind="eval", name="other", creator_id=town.ada.user.id, rollout_name="r", entrypoint="m",
        commit_sha="0" * 40, model_path="a/b", config={},
    )  # fmt: skip
    session.add(run)
    session.flush()
    return run.id


def test_it_ends_with_the_session_and_with_the_membership(platform: Platform, town: Any, join: Any) -> None:
    async def story() -> None:
        left, signed_out, stays = join("max"), join("amy"), join("ada")
        with platform.database.write() as session:
            sessions.sign_out_everywhere(session, town.amy.user.id)
        while not signed_out.ended:
            await signed_out.next(DEADLINE)
        with platform.database.write() as session:
            session.delete(session.query(Membership).filter_by(user_id=town.max.user.id).one())
        while not left.ended:
            await left.next(DEADLINE)
        assert not stays.ended

    in_loop(story)


def test_connections_are_bounded(
    platform: Platform, hub: LiveHub, monkeypatch: pytest.MonkeyPatch, join: Any
) -> None:
    monkeypatch.setattr(hubs, "MAX_STREAMS", 3)
    monkeypatch.setattr(hubs, "MAX_STREAMS_OF_A_SESSION", 2)

    async def story() -> None:
        first = join("max")
        second = hub.join(first.session_id, first.user_id, first.workspace_id)
        with pytest.raises(RateLimited):
            hub.join(first.session_id, first.user_id, first.workspace_id)
        join("ada")
        with pytest.raises(Unavailable):
            join("amy")
        hub.leave(second)
        join("amy")

    in_loop(story)


def test_many_changes_become_one_word_for_anything(platform: Platform, town: Any, join: Any) -> None:
    async def story() -> None:
        stream = join("max")
        stream.add({Change("eval", str(number)) for number in range(hubs.MAX_CHANGES + 1)})
        assert await told(stream) == {None}

    in_loop(story)


def test_a_change_is_looked_up_once_for_all_pages(
    platform: Platform, town: Any, hub: LiveHub, join: Any
) -> None:
    """However many pages look on, a change is looked up once."""
    run_id = add_run(platform, town.acme.id, town.ada.user.id)
    asked: list[str] = []

    def count(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if threading.current_thread().name == "live" and statement.startswith("SELECT"):
            asked.append(statement)

    async def story() -> None:
        first = join("max")
        others = [hub.join(first.session_id, first.user_id, first.workspace_id) for _ in range(15)]
        event.listen(platform.database.engine, "before_cursor_execute", count)
        with platform.database.write() as session:
            log(session, run_id, "line")
        for stream in (first, *others):
            assert Change("train", run_id) in await told(stream)
        assert sum("FROM runs" in statement for statement in asked) == 1

    in_loop(story)


def test_the_address_answers_with_events_and_ends_in_time(browser: Any) -> None:
    signed_in = browser("max")
    answer = signed_in.client.get("/acme/events?seconds=0")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    name, data = answer.text.strip().splitlines()
    assert (name, json.loads(data.removeprefix("data: "))) == ("event: ready", [])
    assert signed_in.client.get("/other/events?seconds=0").status_code == 404
    assert signed_in.client.get("/acme/events?seconds=601").status_code in (400, 422)
