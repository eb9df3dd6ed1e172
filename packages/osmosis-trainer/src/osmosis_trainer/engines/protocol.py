"""The verbs every engine speaks, and the plain values that cross them.

The verbs are those of the Tinker API (sample, forward_backward, optim_step, save/load state), so the algorithm above
them is the same for one CPU process and for a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

LossName = Literal["clip", "is", "grpo", "dr_grpo", "dapo", "gspo", "cispo"]

# The name under which the adapter being trained is sampled.
POLICY = "policy"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is sampled.

    `max_tokens` >= 1 counts new tokens. `temperature` 0 is greedy. `top_p` in (0, 1]. Sampling ends after the first
    token in `stop_ids`, which is part of the completion. With a `seed` the tokens of a request depend on nothing but
    prompt, weights and parameters; without one the engine draws a seed.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: frozenset[int] = frozenset()
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; ask for at least 1 token")
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must be a number >= 0 (0 is greedy)")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}; it must be in (0, 1]")


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled tokens. `logprobs[i]` is log p(`token_ids[i]`), in nats, under the distribution that was sampled from
    (after temperature and top-p; greedy reports the model's own distribution). `cached_tokens` of the prompt were
    not computed again."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]
    policy_version: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One unbroken token sequence of a trajectory.

    `token_ids`, `mask`, `logprobs` have equal length. `mask` is 1 exactly on sampled tokens that are trained;
    `logprobs` holds the sampler's log-probability there and is ignored elsewhere. `group` names the prompt group
    (rows of one group share a prompt), `advantage` belongs to every trained token of the row. `anchors`, like `logprobs`,
    are the learner's numbers for the policy that sampled, where that is an older one and the sampler another program.
    """

    token_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    advantage: float
    group: int
    row_id: str
    anchors: list[float] | None = None

    def __post_init__(self) -> None:
        if self.anchors is not None and len(self.anchors) != len(self.token_ids):
            raise ValueError(
                f"row {self.row_id}: {len(self.token_ids)} token_ids and {len(self.anchors)} anchors; there must be one "
                "per token"
            )
        if not len(self.token_ids) == len(self.mask) == len(self.logprobs):
            raise ValueError(
                f"row {self.row_id}: {len(self.token_ids)} token_ids, {len(self.mask)} mask values and "
                f"{len(self.logprobs)} logprobs; all three must have one value per token"
            )
        if self.mask and self.mask[0]:
            raise ValueError(f"row {self.row_id}: the first token is masked as sampled; nothing predicts it")


@dataclass(frozen=True, slots=True)
class Objective:
    """What a step minimises. Definitions and sources: `osmosis_trainer.learner.losses`.

    `clip_low`/`clip_high`: the ratio is clipped to [1 - clip_low, 1 + clip_high]. `negative_cap`: upper bound of the
    ratio for negative advantages (`clip` only; None for no bound). `ratio_cap`: upper bound of the weight (`cispo`).
    `kl_coef` weighs the KL estimate to the base model (adapter off). `temperature` is the one the rows were sampled
    with. `mismatch_cap`: the rows come from a sampler of its own program, whose difference to the learner is corrected by
    weights of at most this (`osmosis_trainer.learner.mismatch`). `max_completion_tokens` is the constant divisor of `dr_grpo`. `total_tokens`/`total_rows` are the trained
    tokens and rows of the whole optimizer step when it is fed in several `forward_backward` calls; left out, a call
    is a whole step.
    """

    loss: LossName = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.28
    negative_cap: float | None = 3.0
    ratio_cap: float = 5.0
    kl_coef: float = 0.0
    temperature: float = 1.0
    mismatch_cap: float | None = None
    max_completion_tokens: int | None = None
    total_tokens: int | None = None
    total_rows: int | None = None


@runtime_checkable
class Engine(Protocol):
    """Samples from, trains and stores one policy: a LoRA adapter over a base model.

    `capabilities` says what of it the engine does; "overlap": the published policy can be sampled while
    `forward_backward` runs; "score": the engine is `Scores` too.
    """

    name: str
    capabilities: frozenset[str]
    tokenizer: PreTrainedTokenizerFast
    max_context: int
    policy_version: int

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        adapter: str | None = POLICY,
        on_token: Callable[[int, float], None] | None = None,
    ) -> Completion:
        """Sample one completion; cancelling the awaiting task frees its place. `adapter` None is the base model.

        `on_token(token_id, logprob)` is called on the caller's event loop, in order, before the result.
        Raises ContextLengthError, UnknownAdapterError, EngineClosedError.
        """
        ...

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        """Add the gradient of the objective over `rows` to the accumulated one; returns metrics."""
        ...

    async def optim_step(self, *, lr: float, max_grad_norm: float) -> dict[str, float]:
        """Clip the accumulated gradient to `max_grad_norm`, apply AdamW, clear the gradient."""
        ...

    async def publish(self) -> int:
        """Make the current weights the ones later samples use; returns the new policy version."""
        ...

    async def save_state(self, folder: Path) -> None:
        """Write adapter and optimizer, all an exact resume needs, atomically to `folder`."""
        ...

    async def load_state(self, folder: Path) -> None:
        """Continue from `save_state`; raises StateError when anything is missing or does not fit."""
        ...

    async def export_adapter(self, folder: Path) -> None:
        """Write the adapter in PEFT format to `folder`."""
        ...

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve the PEFT adapter in `folder` under `name`."""
        ...

    async def unload_adapter(self, name: str) -> None:
        """Stop serving `name`; its running samples are finished first."""
        ...

    async def close(self) -> None:
        """End the engine; open samples fail with EngineClosedError."""
        ...


@runtime_checkable
class Scores(Protocol):
    """What engines with the capability "score" have beside the verbs of `Engine`."""

    async def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        """Log-probabilities, in nats, of the trained tokens of each row under the learner's current weights."""
        ...
