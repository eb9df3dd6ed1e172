"""The rollout of the current task."""

import asyncio

import pytest

from osmosis_ai.rollout import GraderContext, RolloutContext, RolloutSample, SampleSource, get_rollout_context
from osmosis_ai.rollout.context import rollout_contextvar


class Source(SampleSource):
    def __init__(self) -> None:
        self.asked = 0

    async def get_sample(self) -> RolloutSample:
        self.asked += 1
        return RolloutSample(messages=[{"n": self.asked}])


def test_environment_fills_empty_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHAT_COMPLETIONS_URL", "API_KEY", "ROLLOUT_ID"):
        monkeypatch.setenv(f"OSMOSIS_{name}", name)
    ctx = RolloutContext()
    assert (ctx.chat_completions_url, ctx.api_key, ctx.rollout_id) == (
        "CHAT_COMPLETIONS_URL",
        "API_KEY",
        "ROLLOUT_ID",
    )
    assert RolloutContext("u", "k", "r").api_key == "k"


def test_leaving_makes_none_current_even_inside_another() -> None:
    with RolloutContext(rollout_id="outer") as outer:
        assert get_rollout_context() is outer
        with RolloutContext(rollout_id="inner") as inner:
            assert get_rollout_context() is inner
        assert get_rollout_context() is None
    token = rollout_contextvar.set(outer)
    assert get_rollout_context() is outer
    rollout_contextvar.reset(token)
    assert get_rollout_context() is None


async def test_context_follows_tasks_and_worker_threads_and_stays_in_its_task() -> None:
    async def rollout(name: str, barrier: asyncio.Barrier) -> list[str]:
        with RolloutContext(rollout_id=name):
            await barrier.wait()
            child = asyncio.create_task(asyncio.to_thread(get_rollout_context))
            seen = [get_rollout_context(), await child, await asyncio.to_thread(get_rollout_context)]
            return [ctx.rollout_id for ctx in seen if ctx]

    barrier = asyncio.Barrier(2)
    assert await asyncio.gather(rollout("a", barrier), rollout("b", barrier)) == [["a"] * 3, ["b"] * 3]


async def test_one_sample_source_asked_each_time() -> None:
    ctx = RolloutContext()
    assert await ctx.get_sample() is None
    source = Source()
    ctx.set_sample_source(source)
    with pytest.raises(ValueError, match="already has a sample source"):
        ctx.set_sample_source(Source())
    await ctx.get_sample()
    sample = await ctx.get_sample()
    assert sample is not None
    assert sample.messages == [{"n": 2}]


def test_set_reward_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="no sample to reward"):
        GraderContext().set_reward(1.0)
    ctx = GraderContext(sample=RolloutSample())
    ctx.set_reward(0.5)
    assert ctx.sample is not None
    assert ctx.sample.reward == 0.5
