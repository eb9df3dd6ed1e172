"""A trace in the words of others: the trajectory report of the rollout protocol, and the dashboard's trajectory."""

from __future__ import annotations

from typing import Any

from osmosis_trainer.chat.codec import ChatCodec
from osmosis_trainer.gateway.trace import CallRecord, SessionTrace

SAMPLE_KEY = "policy"


def trajectory_report(trace: SessionTrace, model_name: str) -> dict[str, Any] | None:
    """Usage, token ids and log-probabilities per call, for the rollout's trajectory document; None without calls."""
    if not trace.calls:
        return None
    calls = [_call_metrics(trace, call, model_name) for call in trace.calls]
    sample = {
        "model_name": model_name,
        "llm_call_metrics": calls,
        "final_metrics": {
            "total_prompt_tokens": sum(call["prompt_tokens"] for call in calls),
            "total_completion_tokens": sum(call["completion_tokens"] for call in calls),
            "total_cached_tokens": sum(call["cached_tokens"] for call in calls),
        },
    }
    return {"model_name": model_name, "samples": {SAMPLE_KEY: sample}}


def _call_metrics(trace: SessionTrace, call: CallRecord, model_name: str) -> dict[str, Any]:
    prompt_ids = trace.prompt_ids(call.index)
    return {
        "prompt_tokens": len(prompt_ids),
        "completion_tokens": len(call.token_ids),
        "cached_tokens": call.cached_tokens,
        "prompt_token_ids": prompt_ids,
        "completion_token_ids": call.token_ids,
        "logprobs": call.logprobs,
        "model_name": model_name,
        "extra": {
            "policy_version": call.policy_version,
            "finish_reason": call.finish_reason,
            "parse_outcome": call.outcome,
            "branch": call.branch.value,
        },
    }


def trajectory_view(trace: SessionTrace, codec: ChatCodec) -> dict[str, Any]:
    """The rollout for a person to read: messages per call in order, and every sampled token with its log-probability."""
    return {
        "rollout_id": trace.rollout_id,
        "sampled_tokens": trace.sampled_tokens,
        "total_tokens": trace.total_tokens,
        "branches": {kind.value: count for kind, count in trace.branches.items()},
        "outcomes": dict(trace.outcomes),
        "retries": trace.retries,
        "refused": trace.refused,
        "tool_sets": list(trace.tool_sets),
        "calls": [_call_view(call, codec) for call in trace.calls],
    }


def _call_view(call: CallRecord, codec: ChatCodec) -> dict[str, Any]:
    return {
        "index": call.index,
        "parent": call.parent,
        "branch": call.branch.value,
        "tool_set": call.tool_set,
        "messages": [*call.messages, call.answer],
        "context_tokens": len(call.context_ids),
        "tokens": [
            {"id": token_id, "text": codec.decode_raw([token_id]), "logprob": round(logprob, 5)}
            for token_id, logprob in zip(call.token_ids, call.logprobs, strict=True)
        ],
        "policy_version": call.policy_version,
        "temperature": call.temperature,
        "top_p": call.top_p,
        "max_tokens": call.max_tokens,
        "finish_reason": call.finish_reason,
        "parse_outcome": call.outcome,
        "cached_tokens": call.cached_tokens,
        "started_s": round(call.started_s, 4),
        "seconds": round(call.seconds, 4),
    }
