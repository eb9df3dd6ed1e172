"""Policies: overrides, seeds, usage, and the difference between a bad request and a policy that is away."""

import os
import sys
import types

import pytest

from osmosis_ai.eval.policy.base import PolicyUnusableError
from osmosis_ai.eval.policy.hosted import HostedPolicy
from osmosis_ai.eval.policy.provider import ProviderPolicy
from osmosis_ai.eval.policy.sampling import AttemptKey, call_seed
from osmosis_ai.rollout.controller.chat import ChatError
from osmosis_ai.worker.spec import PolicyOverrides

BODY = {"model": "osmosis-rollout", "messages": [{"role": "user", "content": "q"}], "temperature": 0.9}


@pytest.fixture
async def make_policy(inference):
    policies = []

    def make(key="secret-key-123", url=None, **options):
        policy = HostedPolicy(url or inference.url, key, "base:lora", **options)
        policy.begin("r", row_index=3, run_index=1)
        policies.append(policy)
        return policy

    yield make
    for policy in policies:
        await policy.aclose()


async def test_a_call_is_forwarded_with_the_model_of_the_deployment(inference, make_policy):
    policy = make_policy(seed=5)
    answer = await policy.complete("r", {**BODY, "max_completion_tokens": 9})
    (request,) = inference.requests
    assert request["model"] == "base:lora"
    assert (request["temperature"], request["max_completion_tokens"]) == (0.9, 9)
    assert request["seed"] == call_seed(5, AttemptKey(3, 1), 0)
    assert answer["model"] == "osmosis-rollout"


async def test_the_config_wins_over_the_agent(inference, make_policy):
    policy = make_policy(overrides=PolicyOverrides(temperature=0.0, top_p=0.5, max_tokens=8, seed=77))
    await policy.complete("r", {**BODY, "seed": 1, "max_completion_tokens": 900})
    (request,) = inference.requests
    assert (request["temperature"], request["top_p"], request["max_tokens"]) == (0.0, 0.5, 8)
    assert "max_completion_tokens" not in request
    assert request["seed"] == call_seed(77, AttemptKey(3, 1), 0)


async def test_the_agents_own_seed_is_kept_without_an_override(inference, make_policy):
    await make_policy().complete("r", {**BODY, "seed": 1})
    assert inference.requests[0]["seed"] == 1


async def test_seeds_repeat_per_attempt_and_differ_within_it(inference, make_policy):
    for _ in range(2):
        policy = make_policy()
        for _ in range(2):
            await policy.complete("r", BODY)
    seeds = [request["seed"] for request in inference.requests]
    assert seeds[:2] == seeds[2:]
    assert len(set(seeds)) == 2
    assert call_seed(0, AttemptKey(0, 1), 0) != call_seed(0, AttemptKey(1, 0), 0)


async def test_usage_is_counted_per_rollout(make_policy):
    policy = make_policy()
    await policy.complete("r", BODY)
    await policy.complete("r", BODY)
    await policy.complete("other", BODY)
    assert policy.tokens("r") == 20
    sample = policy.trajectory_report("r")["samples"]["r"]
    assert sample["llm_call_metrics"] == 2 * [
        {"prompt_tokens": 7, "completion_tokens": 3, "model_name": "base:lora"}
    ]
    policy.discard("r")
    assert policy.tokens("r") is None
    assert policy.trajectory_report("r") is None
    assert policy.tokens("other") == 10


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_policy_that_is_away_for_a_moment_is_waited_for(status, inference, make_policy):
    inference.trouble = [status]
    answer = await make_policy().complete("r", BODY)
    assert answer["choices"][0]["message"]["content"] == "42"
    assert len({request["seed"] for request in inference.requests}) == 1


async def test_a_policy_that_stays_away_is_infrastructure(make_policy, unused_port):
    policy = make_policy(url=f"http://127.0.0.1:{unused_port}/v1", hold_s=0.3)
    with pytest.raises(ChatError, match="not reachable") as caught:
        await policy.complete("r", BODY)
    assert caught.value.infrastructure
    assert caught.value.status == 502  # clients do not repeat it


@pytest.mark.parametrize(("status", "infrastructure"), [(400, False), (422, False), (401, True), (404, True)])
async def test_refusals_are_passed_on(status, infrastructure, inference, make_policy):
    inference.trouble = [status]
    with pytest.raises(ChatError, match="trouble") as caught:
        await make_policy().complete("r", BODY)
    assert (caught.value.status, caught.value.infrastructure) == (status, infrastructure)
    assert len(inference.requests) == 1


async def test_preflight(make_policy):
    await make_policy().preflight()
    with pytest.raises(
        PolicyUnusableError, match=r"'base:lora' cannot be used: .*401: wrong key.*model_path"
    ):
        await make_policy(key="wrong-key-456").preflight()


class RateLimitError(Exception):
    status_code = 429


class AuthenticationError(Exception):
    status_code = 401


@pytest.fixture
def litellm(monkeypatch):
    fake = types.ModuleType("litellm")
    fake.errors = []
    fake.calls = []

    async def acompletion(**kwargs):
        fake.calls.append(kwargs)
        if fake.errors:
            raise fake.errors.pop(0)
        message = {"role": "assistant", "content": "hi"}
        usage = {"prompt_tokens": 1, "completion_tokens": 2}
        return {"choices": [{"index": 0, "message": message}], "usage": usage}

    fake.acompletion = acompletion
    monkeypatch.setitem(sys.modules, "litellm", fake)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    return fake


async def test_a_provider_gets_its_credentials_and_the_overrides(litellm):
    policy = ProviderPolicy(
        "openai/gpt-x",
        {"OPENAI_API_KEY": "sk-verysecret"},
        overrides=PolicyOverrides(temperature=0.1, seed=4),
    )
    policy.begin("r", row_index=0, run_index=0)
    await policy.complete("r", BODY)
    (call,) = litellm.calls
    assert os.environ["OPENAI_API_KEY"] == "sk-verysecret"
    assert (call["model"], call["temperature"]) == ("openai/gpt-x", 0.1)
    assert call["seed"] == call_seed(4, AttemptKey(0, 0), 0)
    assert policy.tokens("r") == 3


async def test_without_an_override_a_provider_gets_no_seed(litellm):
    await ProviderPolicy("openai/gpt-x", {}).complete("r", BODY)
    assert "seed" not in litellm.calls[0]


async def test_a_rate_limit_is_held(litellm):
    litellm.errors = [RateLimitError("slow down")]
    await ProviderPolicy("openai/gpt-x", {}).complete("r", BODY)
    assert len(litellm.calls) == 2


async def test_credentials_do_not_appear_in_messages(litellm):
    litellm.errors = [AuthenticationError("Incorrect API key provided: sk-verysecret.")]
    policy = ProviderPolicy("openai/gpt-x", {"OPENAI_API_KEY": "sk-verysecret"})
    with pytest.raises(PolicyUnusableError, match="Incorrect API key") as caught:
        await policy.preflight()
    assert "verysecret" not in str(caught.value)
    assert "[REDACTED]" in str(caught.value)


async def test_a_missing_litellm_fails_early(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(PolicyUnusableError, match=r"osmosis-ai\[eval-run\]"):
        await ProviderPolicy("openai/gpt-x", {}).preflight()
