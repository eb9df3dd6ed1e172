"""Our values in the JSON of the Tinker API, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from osmosis_trainer.engines.protocol import Completion, SamplingParams, TrainingRow
from osmosis_trainer.engines.tinker.errors import ServerError
from osmosis_trainer.errors import NonFiniteLossError

# Servers keep seeds in 32 signed bits.
_SEED_RANGE = 2**31 - 1


def model_input(tokens: Sequence[int]) -> dict[str, Any]:
    """A sequence of tokens as the model reads it."""
    return {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]}


def integers(values: Sequence[int]) -> dict[str, Any]:
    """A tensor of whole numbers."""
    return {"data": list(values), "dtype": "int64", "shape": [len(values)]}


def reals(values: Sequence[float]) -> dict[str, Any]:
    """A tensor of float32 numbers."""
    return {"data": list(values), "dtype": "float32", "shape": [len(values)]}


def scored_datum(token_ids: Sequence[int]) -> dict[str, Any]:
    """A sequence whose every token but the first is to be scored: position i of the input predicts token i + 1."""
    return {
        "model_input": model_input(token_ids[:-1]),
        "loss_fn_inputs": {
            "target_tokens": integers(token_ids[1:]),
            "weights": reals([1.0] * (len(token_ids) - 1)),
        },
    }


def weighted_datum(
    token_ids: Sequence[int], logprobs: Sequence[float], advantages: Sequence[float]
) -> dict[str, Any]:
    """A sequence for the loss `importance_sampling`, one log-probability and one advantage per predicted token.

    With the log-probabilities of the present weights every ratio is 1: the gradient is that of
    -sum(advantage * log-probability), so any loss can be expressed by its derivatives.
    """
    return {
        "model_input": model_input(token_ids[:-1]),
        "loss_fn_inputs": {
            "target_tokens": integers(token_ids[1:]),
            "logprobs": reals(logprobs),
            "advantages": reals(advantages),
        },
    }


def batches(rows: Sequence[TrainingRow], budget: int) -> Iterator[list[TrainingRow]]:
    """Rows in their order, in parts of at most `budget` tokens; a longer row is a part of its own."""
    part: list[TrainingRow] = []
    tokens = 0
    for row in rows:
        if part and tokens + len(row.token_ids) > budget:
            yield part
            part, tokens = [], 0
        part.append(row)
        tokens += len(row.token_ids)
    if part:
        yield part


def scores(result: dict[str, Any], lengths: Sequence[int], what: str) -> list[list[float]]:
    """Log-probabilities of a pass, one list per datum; `lengths` are the predicted tokens of each.

    Raises NonFiniteLossError when one is not finite, ServerError when the answer has another shape.
    """
    outputs = result.get("loss_fn_outputs")
    found = [_numbers(output, what) for output in outputs] if isinstance(outputs, list) else []
    if [len(values) for values in found] != list(lengths):
        raise ServerError(
            f"{what}: the server answered {[len(values) for values in found]} log-probabilities for sequences of "
            f"{list(lengths)} predicted tokens"
        )
    if not all(math.isfinite(value) for values in found for value in values):
        raise NonFiniteLossError(f"{what}: the server answered a log-probability that is not finite")
    return found


def _numbers(output: Any, what: str) -> list[float]:
    try:
        # A server that computed a NaN may send it as null.
        return [math.nan if value is None else float(value) for value in output["logprobs"]["data"]]
    except (TypeError, KeyError, ValueError) as error:
        raise ServerError(f"{what}: the server answered no log-probabilities ({error!r})") from error


def sampling_params(params: SamplingParams, room: int) -> dict[str, Any]:
    """Parameters of one sampling request of at most `room` tokens."""
    fields: dict[str, Any] = {
        "max_tokens": room,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": -1,
    }
    if params.stop_ids:
        fields["stop"] = sorted(params.stop_ids)
    if params.seed is not None:
        fields["seed"] = params.seed % _SEED_RANGE
    return fields


def completion(
    result: dict[str, Any], params: SamplingParams, room: int, eos: int | None, version: int
) -> Completion:
    """The one sampled sequence of a result. Raises ServerError when it cannot be trained on exactly."""
    try:
        [sequence] = result["sequences"]
        tokens = [int(token) for token in sequence["tokens"]]
        logprobs = [float(value) for value in sequence["logprobs"]]
        stopped = sequence["stop_reason"] == "stop"
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(
            f"sampling: the server's answer has no tokens with log-probabilities ({error!r})"
        ) from error
    if not 0 < len(tokens) == len(logprobs) <= room:
        raise ServerError(
            f"sampling: the server answered {len(tokens)} tokens and {len(logprobs)} log-probabilities; "
            f"1 to {room} of both were asked for"
        )
    if not all(math.isfinite(value) for value in logprobs):
        raise ServerError("sampling: the server answered a log-probability that is not finite")
    if stopped and tokens[-1] not in params.stop_ids and tokens[-1] != eos:
        raise ServerError(
            "sampling: the server leaves out the token it stopped at, so that token could not be trained; "
            "use a server that returns stop tokens"
        )
    cached = int(result.get("prompt_cache_hit_tokens") or 0)
    return Completion(tokens, logprobs, "stop" if stopped else "length", version, cached)
