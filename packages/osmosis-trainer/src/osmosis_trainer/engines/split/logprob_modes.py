"""What a server's log-probabilities of sampled tokens are: the model's own, or those of the distribution sampled from.

vLLM says neither in its answers; both are measured. Training needs the log-probabilities of what was sampled, so a
server that leaves temperature or top-p out is refused where a run uses them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from osmosis_trainer.engines.protocol import SamplingParams, TrainingRow
from osmosis_trainer.engines.split.wire import SamplingServer, check_answer
from osmosis_trainer.errors import ConfigError

Score = Callable[[Sequence[TrainingRow], float], Awaitable[list[list[float]]]]

_TOKENS = 8
_REMEDY = "start vLLM with --logprobs-mode processed_logprobs"


async def require_temperature(
    server: SamplingServer, model: str, prompt: Sequence[int], temperature: float, score: Score
) -> None:
    """Raise ConfigError unless the server's log-probabilities are those at `temperature`."""
    params = SamplingParams(_TOKENS, temperature=temperature, seed=1)
    answer = check_answer(server.url, model, prompt, params, await server.sample(model, prompt, params))
    ids = [*prompt, *answer.token_ids]
    mask = [0] * len(prompt) + [1] * len(answer.token_ids)
    rows = [TrainingRow(ids, mask, [0.0] * len(ids), 0.0, 0, "mode")]

    async def distance(at: float) -> float:
        return max(abs(a - b) for a, b in zip((await score(rows, at))[0], answer.logprobs, strict=True))

    if await distance(1.0) < await distance(temperature):
        raise ConfigError(
            f"[sampling] rollout_temperature is {temperature:g}, but the log-probabilities of {server.url} leave the "
            f"temperature out; {_REMEDY} (SGLang: without SGLANG_RETURN_ORIGINAL_LOGPROB), or use temperature 1"
        )


async def require_top_p(server: SamplingServer, model: str, prompt: Sequence[int]) -> None:
    """Raise ConfigError unless the server's log-probabilities are those after the cut by top-p."""
    # So small a mass leaves one token, whose probability is then 1.
    params = SamplingParams(1, top_p=1e-6, seed=1)
    answer = check_answer(server.url, model, prompt, params, await server.sample(model, prompt, params))
    if answer.logprobs[0] < -1e-5:
        raise ConfigError(
            f"[sampling] rollout_top_p is below 1, but the log-probabilities of {server.url} leave it out; {_REMEDY}, or "
            "use top-p 1"
        )
