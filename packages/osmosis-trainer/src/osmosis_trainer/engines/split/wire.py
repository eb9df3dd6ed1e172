"""What a sampling server is asked, whatever its dialect, and how it can fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx

from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.errors import EngineError

_CONNECT_S = 10.0
_REASON_LENGTH = 300


class ServerLostError(EngineError):
    """A server did not answer, or answered that it is broken: another one, or the same one later, may."""

    code = "sampling_server_lost"


class SamplerFaultError(EngineError):
    """A server answered something else than it was asked, or samples from another policy: the run must not go on."""

    code = "sampler_fault"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself. `base` is its name for the base model, `max_context` in tokens. `adapters` are
    loaded now, `slots` is how many it holds ready; None where the server does not tell."""

    base: str
    max_context: int | None
    adapters: frozenset[str]
    slots: int | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """One answer, token for token; `prompt_ids` and `model` are what the server says it answered, where it tells."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]
    model: str | None
    prompt_ids: list[int] | None
    cached_tokens: int = 0


class SamplingServer(Protocol):
    """One server. Every call raises ServerLostError when the server cannot be reached or is broken, EngineError with
    the server's own words when it refuses."""

    url: str

    async def facts(self) -> ServerFacts:
        """Ask the server about itself."""
        ...

    async def load(self, name: str, folder: str) -> None:
        """Load the PEFT adapter in `folder`, as the server sees the file system, under a name that is new to it."""
        ...

    async def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is forgotten already."""
        ...

    async def sample(self, model: str, prompt: Sequence[int], params: SamplingParams) -> Sampled:
        """Sample one completion from an adapter, or from the base model under its name."""
        ...

    async def score(self, model: str, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities, in nats at temperature 1, of all tokens but the first of each prompt."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Connection:
    """JSON over HTTP to one server. Cancelling a call closes its connection, which frees its place on the server."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def get(self, path: str) -> httpx.Response:
        """The answer to a GET, whatever its status below 500."""
        return await self._send("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The answer to a POST, whatever its status below 500."""
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ServerLostError(f"{self.url}{path}: {error or type(error).__name__}") from error
        if answer.status_code >= 500:
            raise ServerLostError(f"{self.url}{path}: {self.reason(answer)}")
        return answer

    def json(self, answer: httpx.Response) -> Any:
        """The body of a good answer; raises EngineError with the server's reason for any other."""
        if answer.status_code != 200:
            raise EngineError(f"{self.url} refuses: {self.reason(answer)}")
        try:
            return answer.json()
        except ValueError as error:
            raise ServerLostError(f"{self.url} answered no JSON to {answer.request.url.path}") from error

    @staticmethod
    def reason(answer: httpx.Response) -> str:
        """Status and beginning of an answer's text, in one line."""
        return f"HTTP {answer.status_code}: {' '.join(answer.text.split())[:_REASON_LENGTH]}"

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def check_answer(
    url: str, asked: str, prompt: Sequence[int], params: SamplingParams, answer: Sampled
) -> Sampled:
    """The answer, when it is one to this request. Raises SamplerFaultError naming what differs."""
    tokens = answer.token_ids
    wrong = None
    if answer.model is not None and answer.model != asked:
        wrong = f"it answered with {answer.model!r} where {asked!r} was asked"
    elif answer.prompt_ids is not None and answer.prompt_ids != list(prompt):
        wrong = "it echoes other prompt tokens than it was sent"
    elif not tokens or len(tokens) > params.max_tokens or len(tokens) != len(answer.logprobs):
        wrong = (
            f"it returned {len(tokens)} tokens with {len(answer.logprobs)} log-probabilities where 1 to "
            f"{params.max_tokens} were asked"
        )
    elif not all(isinstance(value, float | int) and math.isfinite(value) for value in answer.logprobs):
        wrong = "it returned a log-probability that is no number"
    elif answer.finish_reason == "stop" and tokens[-1] not in params.stop_ids:
        wrong = (
            f"it stopped at token {tokens[-1]}, which is none of the stop tokens; start it without stop tokens and "
            "sampling defaults of its own (vLLM: --generation-config vllm)"
        )
    elif any(token in params.stop_ids for token in tokens[:-1]):
        wrong = "it went on after a stop token"
    if wrong:
        raise SamplerFaultError(f"the sampling server {url} cannot be trusted: {wrong}")
    return answer
