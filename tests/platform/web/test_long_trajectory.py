"""Trajectories are read by the page: the same steps as in the whole document, wherever the pages begin."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osmosis_platform.context import Platform
from osmosis_platform.runs import trajectories
from osmosis_platform.runs.models import RunAttempt, RunSample


def steps(number: int) -> list[dict[str, Any]]:
    """Steps of many sizes, with everything that could be taken for structure, and bytes that are no ASCII."""
    return [
        {
            "step_id": index + 1,
            "source": "agent" if index % 2 else "user",
            "message": f']}}{{[\\" ,{index}, ä€😀 \\u2028 ' + "x" * (index % 37 * 40),
            "metrics": {"prompt_tokens": index, "completion_tokens": 2, "extra": [[index, {"a": "]"}]]},
        }
        for index in range(number)
    ]


@pytest.fixture
def stored(platform: Platform) -> tuple[str, list[dict[str, Any]]]:
    found = steps(2600)
    document = {
        "schema_version": "ATIF-v1",
        "agent": {"name": "steps", "tools": ["[", {"steps": [1]}]},
        "steps": found,
        "end": 1,
    }
    text = json.dumps(document, ensure_ascii=False, indent=1)
    assert len(text) > trajectories.SMALL_BYTES
    return platform.blobs.put_bytes(text.encode()).sha256, found


@pytest.mark.parametrize("size", [1000, 4096, 10**6])
def test_every_page_is_that_of_the_document(
    platform: Platform, stored: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also where pieces of the file end in the middle of a step, a character or a number."""
    sha256, whole = stored
    monkeypatch.setattr(trajectories, "_CHUNK", size)
    monkeypatch.setattr(trajectories, "_known", trajectories._Known())
    first = trajectories.window(platform.blobs, sha256, 0)
    assert (first.steps, first.more, first.total) == (whole[:100], True, None)
    for offset in (2500, 1234, 100, 2599, 2400):
        found = trajectories.window(platform.blobs, sha256, offset)
        assert found.steps == whole[offset : offset + 100]
        assert found.more == (offset + 100 < len(whole))
        assert found.total == len(whole)  # the last page was the first one asked for
    assert trajectories.window(platform.blobs, sha256, 5000).steps == []


def test_the_page_of_an_attempt_shows_a_part(
    platform: Platform, add_run: Any, browser: Any, stored: Any
) -> None:
    with platform.database.write() as session:
        run = add_run(session, kind="eval", status="finished")
        session.add(
            RunAttempt(
                run_id=run.id,
                row_index=0,
                run_index=0,
                rollout_id="r",
                status="success",
                trajectory_sha256=stored[0],
            )
        )
    path = f"/acme/evaluation/{run.id}/attempts/0/0"
    client = browser("max")
    data = client.json(f"{path}?offset=200")
    assert [step["prompt_tokens"] for step in data["steps"]] == list(range(200, 300))
    assert data["steps_page"] == {"limit": 100, "offset": 200, "total": None, "more": True}
    page = client.get(f"{path}?offset=2500").text
    assert "Steps 2,501–2,600 of 2,600" in page
    assert "2,599 tokens in, 2 out" in page
    assert "The trajectory ends before this" in client.get(f"{path}?offset=9000").text


def test_the_page_of_a_training_sample_reads_a_part(
    browser: Any, platform: Platform, add_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = {
        "branch": "root", "context_tokens": 40, "policy_version": 3, "temperature": 1.0, "finish_reason": "stop", "parse_outcome": "text",
        "cached_tokens": 12, "seconds": 0.25, "tokens": [{"id": 7, "text": "ä", "logprob": -0.01}],
    }  # fmt: skip
    calls = [
        {**call, "index": n, "messages": [{"role": "assistant", "content": f'{n} ]}}" ' + "ü" * 900}]}
        for n in range(700)
    ]
    facts = {"outcome": "timeout", "reason": "tö slow", "sampled_tokens": 700, "total_tokens": 9}
    tools = [[{"type": "function", "function": {"name": "lookup"}}]]
    document = {"rollout_id": "r", **facts, "tool_sets": tools, "calls": calls, "after": 1}
    text = json.dumps(document, ensure_ascii=False).encode()
    assert len(text) > trajectories.SMALL_BYTES
    with platform.database.write() as session:
        run = add_run(session)
        sha256 = platform.blobs.put_bytes(text).sha256
        sample = {"step": 3, "row_index": 0, "sample_index": 0, "rollout_id": "r", "reward": 0.5}
        session.add(RunSample(run_id=run.id, blob_sha256=sha256, **sample))
    monkeypatch.setattr(trajectories, "_CHUNK", 65_536)
    page = f"/acme/training/{run.id}/samples/3/0/0"
    max = browser("max")
    first = max.json(page)
    assert {name: first[name] for name in facts} == facts
    assert (first["tools"], first["reward"]) == (["lookup"], 0.5)
    assert [call["index"] for call in first["calls"]] == list(range(20))
    assert first["calls_page"] == {"limit": 20, "offset": 0, "total": None, "more": True}
    assert "more than 20" in max.get(page).text
    last = max.json(f"{page}?offset=690")
    assert [call["answer"]["message"][:3] for call in last["calls"]] == [str(n) for n in range(690, 700)]
    assert last["calls_page"] == {"limit": 20, "offset": 690, "total": 700, "more": False}
    shown = max.get(f"{page}?offset=680").text
    assert "Calls 681–700 of 700" in shown
    assert "tö slow" in shown
    assert "ends before this" in max.get(f"{page}?offset=900").text
