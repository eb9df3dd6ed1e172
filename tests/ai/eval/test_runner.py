"""Whole evaluations against a real rollout server and an inference server."""

import asyncio
import json
from dataclasses import replace

import pytest

from osmosis_ai.eval.policy.base import PolicyUnusableError
from osmosis_ai.eval.policy.hosted import HostedPolicy
from osmosis_ai.eval.runner import EvalFailedError, EvalRunner
from osmosis_ai.rollout.controller import watch
from osmosis_ai.worker.spec import EvalConfig


@pytest.fixture
async def make_runner(agent, inference, sink, tmp_path):
    policies = []

    def make(rows, server=agent, policy=None, hold_s=5.0, **evaluation):
        options = {key: evaluation.pop(key) for key in ("grace_s", "server_wait_s") if key in evaluation}
        evaluation.setdefault("limit", len(rows))
        policy = policy or HostedPolicy(inference.url, "secret-key-123", "policy", hold_s=hold_s)
        policies.append(policy)
        return EvalRunner(
            rows=rows,
            config=EvalConfig.model_validate({"evaluation": evaluation}),
            policy=policy,
            sink=sink,
            rollout_url=server.url,
            instance_id=server.instance_id,
            artifact_root=server.artifact_root,
            work_dir=tmp_path / "work",
            **options,
        )

    yield make
    for policy in policies:
        await policy.aclose()


async def test_an_evaluation_from_rows_to_numbers(make_runner, memory_rows, sink, inference):
    rows = memory_rows(6, {4: "raise", 5: "skip"}, wrong=(0,))
    outcome = await make_runner(rows, n=2).run()
    assert outcome.status == "finished"
    results = outcome.summary["results"]
    assert (results["total_runs"], results["graded"], results["passed"]) == (12, 8, 6)
    assert (results["failed"], results["skipped"]) == (2, 2)
    assert results["score"] == 0.75
    assert results["pass_rate"] == pytest.approx(6 / 10)
    assert set(sink.attempts) == {(row, run) for row in range(6) for run in range(2)}
    assert sink.attempts[(4, 0)].error_type == "agent_error"
    assert "no such tool" in sink.attempts[(4, 0)].error_message
    assert sink.attempts[(5, 1)].status == "skipped"
    assert sink.attempts[(0, 0)].reward == 0.0
    assert sink.attempts[(1, 0)].tokens == 10
    assert sink.attempts[(1, 0)].duration_ms > 0
    assert sink.state["examples_processed"] == sink.state["total_steps"] == 12
    assert (sink.state["sampled_rows"], sink.state["total_runs"]) == (6, 12)
    assert len({record.rollout_id for record in sink.attempts.values()}) == 12
    assert len({request["seed"] for request in inference.rollout_requests()}) == 10


async def test_a_row_that_the_server_never_takes_fails_alone(make_runner, memory_rows, sink):
    rows = memory_rows(3, {1: json.loads("[" * 200 + "]" * 200)})
    outcome = await make_runner(rows).run()
    assert outcome.status == "finished"
    assert [sink.attempts[(row, 0)].status for row in range(3)] == ["success", "failed", "success"]
    assert sink.attempts[(1, 0)].error_type == "rollout_protocol_error"
    assert "128 levels" in sink.attempts[(1, 0)].error_message


async def test_an_attempt_brings_its_trajectory_and_artifacts(make_runner, memory_rows, sink):
    await make_runner(memory_rows(1, {0: "artifacts"})).run()
    (record,) = sink.attempts.values()
    document = json.loads(sink.files[record.trajectory_blob])
    assert document["extra"]["osmosis"]["rollout_id"] == record.rollout_id
    assert document["extra"]["osmosis"]["request_extra_fields"] == {"row_index": 0, "run_index": 0}
    agent_step = document["steps"][-1]
    assert agent_step["metrics"] == {"prompt_tokens": 7, "completion_tokens": 3}
    (artifact,) = record.artifacts
    assert (artifact.path, artifact.size) == ("notes/answer.txt", 9)
    assert sink.files[artifact.sha256] == b"forty-two"


async def test_finished_attempts_are_not_run_again(make_runner, memory_rows, sink, inference):
    sink.earlier = [{"row_index": 0, "run_index": 0, "status": "success", "reward": 0.0, "tokens": 1}]
    outcome = await make_runner(memory_rows(2), n=2).run()
    assert set(sink.attempts) == {(0, 1), (1, 0), (1, 1)}
    assert len(inference.rollout_requests()) == 3
    results = outcome.summary["results"]
    assert (results["total_runs"], results["resumed_count"], results["score"]) == (4, 1, 0.75)


async def test_a_verdict_that_was_only_written_down_is_delivered_and_not_repeated(
    make_runner, memory_rows, sink, inference
):
    sink.fail_attempts = True
    with pytest.raises(ConnectionError):
        await make_runner(memory_rows(1)).run()
    assert len(inference.rollout_requests()) == 1
    sink.fail_attempts = False
    outcome = await make_runner(memory_rows(1)).run()
    assert outcome.status == "finished"
    assert sink.attempts[(0, 0)].reward == 1.0
    assert sink.attempts[(0, 0)].trajectory_blob in sink.files
    assert len(inference.rollout_requests()) == 1


async def test_a_finished_run_needs_no_policy(make_runner, memory_rows, sink, inference):
    sink.earlier = [{"row_index": 0, "run_index": 0, "status": "success", "reward": 1.0}]
    inference.always = 500
    assert (await make_runner(memory_rows(1)).run()).status == "finished"
    assert inference.requests == []


async def test_batch_size_bounds_what_is_in_flight(make_runner, memory_rows, inference):
    inference.gate = asyncio.Event()
    running = asyncio.create_task(make_runner(memory_rows(6), batch_size=1, n=2).run())
    await inference.until(3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await inference.until(4)
    assert len(inference.rollout_requests()) == 2
    inference.gate.set()
    assert (await running).status == "finished"


async def test_a_stop_finishes_what_is_in_hand(make_runner, memory_rows, sink, inference):
    inference.gate = asyncio.Event()
    running = asyncio.create_task(make_runner(memory_rows(20)).run())
    await inference.until(5)  # the probe and four attempts: the capacity of the server
    sink.stop_requested.set()
    inference.gate.set()
    outcome = await asyncio.wait_for(running, 20)
    assert outcome.status == "stopped"
    assert 4 <= len(sink.attempts) < 20
    assert len(sink.attempts) == len(inference.rollout_requests())


async def test_the_grace_period_of_a_stop_ends(make_runner, memory_rows, sink, inference):
    inference.gate = asyncio.Event()
    running = asyncio.create_task(make_runner(memory_rows(8), grace_s=0.1).run())
    await inference.until(5)
    sink.stop_requested.set()
    outcome = await asyncio.wait_for(running, 20)
    assert outcome.status == "stopped"
    assert sink.attempts == {}


async def test_a_stop_before_the_first_row(make_runner, memory_rows, sink, inference, unused_port, agent):
    sink.stop_requested.set()
    assert (await make_runner(memory_rows(3)).run()).status == "stopped"
    assert inference.rollout_requests() == []


async def test_a_policy_that_cannot_be_used_fails_the_run_before_any_row(
    make_runner, memory_rows, sink, inference
):
    policy = HostedPolicy(inference.url, "wrong-key-456", "policy")
    with pytest.raises(PolicyUnusableError, match="wrong key"):
        await make_runner(memory_rows(3), policy=policy).run()
    assert sink.attempts == {}


async def test_a_policy_that_goes_away_fails_the_run_and_scores_nothing(
    make_runner, memory_rows, sink, inference
):
    inference.gate = asyncio.Event()
    running = asyncio.create_task(make_runner(memory_rows(2), hold_s=0.3, batch_size=1, grace_s=1).run())
    await inference.until(2)
    inference.always = 503
    inference.gate.set()
    with pytest.raises(EvalFailedError, match=r"row 1, attempt 0 could not be run in 3 tries.*503") as caught:
        await asyncio.wait_for(running, 60)
    assert caught.value.code == "POLICY_UNAVAILABLE"
    assert set(sink.attempts) == {(0, 0)}


async def test_a_rollout_server_that_is_not_there(make_runner, memory_rows, sink, unused_port, agent):
    nowhere = replace(agent, url=f"http://127.0.0.1:{unused_port}")
    with pytest.raises(EvalFailedError, match=str(unused_port)) as caught:
        await make_runner(memory_rows(1), server=nowhere, server_wait_s=0.2).run()
    assert caught.value.code == "ROLLOUT_SERVER_UNREACHABLE"


async def test_a_rollout_server_that_crashes_and_comes_back_costs_no_attempt(
    make_runner, memory_rows, sink, inference, start_rollout_server, monkeypatch
):
    monkeypatch.setattr(watch, "POLL_SEC", 0.05)
    server = start_rollout_server()
    inference.gate = asyncio.Event()
    runner = make_runner(memory_rows(5), server=server)
    running = asyncio.create_task(runner.run())
    await inference.until(5)
    server.process.kill()
    server.process.wait()
    port = int(server.url.rsplit(":", 1)[1])
    successor = await asyncio.to_thread(start_rollout_server, port, server.artifact_root)
    inference.gate.set()
    outcome = await asyncio.wait_for(running, 60)
    assert successor.instance_id != server.instance_id
    assert outcome.status == "finished"
    assert outcome.summary["results"]["passed"] == 5
    assert any("rollout_server_lost" in line or "another rollout server" in line for line in sink.logs)


async def test_rows_that_kill_the_server_fail_the_run(
    make_runner, memory_rows, sink, start_rollout_server, monkeypatch
):
    monkeypatch.setattr(watch, "POLL_SEC", 0.05)
    monkeypatch.setattr(watch, "REFUSED_SEC", 0.2)
    server = start_rollout_server()
    with pytest.raises(EvalFailedError, match="row 0, attempt 0"):
        await make_runner(memory_rows(1, {0: "exit"}), server=server, server_wait_s=0.5, grace_s=0.1).run()
    assert sink.attempts == {}
