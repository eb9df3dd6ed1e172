"""The learner: gradients of an objective over training rows, and the optimizer step."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.errors import NonFiniteLossError, UnsupportedModelError
from osmosis_trainer.learner.head import adjust_logits
from osmosis_trainer.learner.layer_kinds import is_recurrent
from osmosis_trainer.learner.lora import trainable
from osmosis_trainer.learner.losses import LossTerms, StepSize, TokenBatch, policy_loss
from osmosis_trainer.learner.memory import OutOfMemoryError, is_out_of_memory, longest_row
from osmosis_trainer.learner.packs import Form, MicroBatch, Pack, bucket, collate, idle_pack, make_packs
from osmosis_trainer.learner.passes import WholePasses
from osmosis_trainer.learner.recompute import recomputing, wrap_layers

logger = logging.getLogger(__name__)

_BETAS = (0.9, 0.95)


@dataclass(slots=True)
class _Sums:
    """Running sums over the micro-batches of one call."""

    loss: float = 0.0
    tokens: int = 0
    entropy: float = 0.0
    kl: float = 0.0
    mismatch_kl: float = 0.0
    clipped: float = 0.0
    truncated: float = 0.0
    masked: float = 0.0
    ratio_max: float = 0.0
    gap_max: float = 0.0
    computed: int = 0
    micro_batches: int = 0
    raw: int = field(default=0)

    def metrics(self) -> dict[str, float]:
        """Means per trained token; see docs/engine.md for each name."""
        tokens = max(self.tokens, 1)
        return {
            "loss": self.loss,
            "tokens": float(self.tokens),
            "entropy": self.entropy / tokens,
            "kl": self.kl / tokens,
            "mismatch_kl": self.mismatch_kl / tokens,
            "clip_ratio": self.clipped / tokens,
            "mismatch_truncated": self.truncated / tokens,
            "mismatch_masked": self.masked / tokens,
            "ratio_max": self.ratio_max,
            "logprob_gap_max": self.gap_max,
            "computed_tokens": float(self.computed),
            "raw_tokens": float(self.raw),
            "micro_batches": float(self.micro_batches),
        }


def padded_only(config: Any, form: Form) -> Form:
    """The batch form for a model: `padded` where layers keep a state, which rows in one sequence would hand on.

    Raises UnsupportedModelError when such a model was asked for another form.
    """
    if not is_recurrent(config):
        return form
    if form not in ("auto", "padded"):
        raise UnsupportedModelError(
            f"batch_form {form!r} is not exact for a model of type {config.model_type!r}: some of its layers keep a state; "
            "use auto or padded"
        )
    return "padded"


class Learner:
    """Trains the adapter of a PEFT model with AdamW (betas .9, .95).

    With `passes` in step with other processes, `forward_backward`, `rehearse` and `score` are called in all of them alike,
    each with rows of its own.
    """

    def __init__(
        self,
        model: Any,
        pad_id: int,
        *,
        token_budget: int = 8192,
        form: Form = "auto",
        weight_decay: float = 0.0,
        recompute: bool = False,
        log: Callable[[str], None] = logger.warning,
        passes: WholePasses | None = None,
    ) -> None:
        self.model = model
        self.base = model.get_base_model()
        self._passes = passes or WholePasses(self.base)
        self.token_budget = token_budget
        self.form: Form = padded_only(self.base.config, form)
        self.parameters = trainable(model)
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=0.0, betas=_BETAS, weight_decay=weight_decay, foreach=True
        )
        self._pad = pad_id
        self._log = log
        self._device = next(iter(self.parameters.values())).device
        self._check_head()
        self._recompute = recompute
        if recompute:
            wrap_layers(self.base.base_model)

    def _check_head(self) -> None:
        """Log-probabilities are computed from the head at sampled positions; make sure the model does nothing unknown."""
        ids = torch.arange(4, device=self._device)[None]
        with torch.no_grad():
            whole = self.base(input_ids=ids, use_cache=False).logits
            hidden = self.base.base_model(input_ids=ids, use_cache=False).last_hidden_state
            ours = adjust_logits(self.base.config, self.base.get_output_embeddings()(hidden))
        self._passes.end()
        if not torch.allclose(ours, whole, rtol=1e-4, atol=1e-4):
            raise UnsupportedModelError(
                f"models of type {self.base.config.model_type!r} change the logits after the output head in a way "
                "the local engine does not know, so it cannot train them exactly"
            )

    def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        """Add the objective's gradient over `rows`; rows without a trained token are left out.

        Raises NonFiniteLossError after dropping the accumulated gradient. Out of memory halves the token budget, says so
        and computes the call again; OutOfMemoryError when one row alone does not fit. In step with other processes,
        which then wait in the middle of a pass, torch's own error is raised instead.
        """
        rows = [row for row in rows if any(row.mask)]
        size = StepSize(
            tokens=objective.total_tokens or sum(sum(row.mask) for row in rows),
            rows=objective.total_rows or len(rows),
        )
        before = [None if p.grad is None else p.grad.clone() for p in self.parameters.values()]
        while True:
            packs = make_packs(rows, self.form, self.token_budget)
            try:
                return self._accumulate(packs, objective, size)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                self._require_several(packs, error)
                if self._passes.in_step:
                    raise
                self._halve_budget()
            for parameter, grad in zip(self.parameters.values(), before, strict=True):
                parameter.grad = None if grad is None else grad.clone()
            torch.cuda.empty_cache()

    def _require_several(self, packs: list[Pack], error: RuntimeError) -> None:
        """Raise OutOfMemoryError where every pass holds one row already."""
        longest = max((len(row.token_ids) for pack in packs for row in pack.rows), default=1)
        if all(len(group) == 1 == len(group[0].rows) for group in bucket(packs, self.token_budget)):
            raise OutOfMemoryError(
                f"a row of {longest} tokens does not fit into memory; lower [training] max_prompt_length or "
                "max_response_length, or take a smaller base model or lora_rank"
            ) from error

    def _halve_budget(self) -> None:
        self.token_budget = max(1, self.token_budget // 2)
        self._log(
            f"out of memory while learning: passes of at most {self.token_budget} tokens from now on (the result is the same); "
            "a lower [advanced] tokens_per_micro_batch avoids the retry"
        )

    def rehearse(self, row_tokens: int) -> None:
        """Compute the gradient of as many rows of `row_tokens` tokens as a pass may hold, at least one, and forget it.

        What does not fit is found out now (see `forward_backward`) and not after hours.
        """
        count = max(1, self.token_budget // row_tokens)
        rows = [longest_row(row_tokens, self.base.config.vocab_size, number) for number in range(count)]
        try:
            self.forward_backward(rows, Objective())
        finally:
            self.drop_gradient()

    def _accumulate(self, packs: list[Pack], objective: Objective, size: StepSize) -> dict[str, float]:
        sums, groups = _Sums(), bucket(packs, self.token_budget)
        idle = self._passes.agreed(len(groups)) - len(groups)
        failed: NonFiniteLossError | None = None
        for group in groups:
            try:
                self._micro_batch(group, objective, size, sums)
            except NonFiniteLossError as error:
                if not self._passes.in_step:
                    raise
                failed = failed or error
        for _ in range(idle):
            new, _, _ = self._forward(collate([idle_pack()], self._pad, self._device), objective)
            (new.sum() * 0.0).backward()
        self._passes.end()
        if failed is not None:
            self.drop_gradient()
            raise failed
        return sums.metrics()

    def _micro_batch(self, packs: list[Pack], objective: Objective, size: StepSize, sums: _Sums) -> None:
        batch = collate(packs, self._pad, self._device)
        new, entropy, reference = self._forward(batch, objective)
        terms = policy_loss(
            TokenBatch(new, batch.old, batch.advantage, batch.row, batch.row_tokens, reference, batch.anchor),
            objective,
            size,
        )
        value = float(terms.total.detach())
        terms.total.backward()
        if not math.isfinite(value):
            self.drop_gradient()
            raise NonFiniteLossError(
                f"the loss of {len(packs)} packs is {value}; the step's gradient was dropped. "
                "A lower learning rate or a tighter clip usually helps"
            )
        before = batch.old if batch.anchor is None else batch.anchor
        self._count(sums, packs, before, new.detach(), entropy, terms, value, batch.ids.numel())

    def _forward(self, batch: MicroBatch, objective: Objective) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probabilities and entropies of the trained tokens, and the log-probabilities under the base model."""
        reference: Tensor | None = None
        if objective.kl_coef:
            with torch.no_grad(), self.model.disable_adapter():
                reference, _ = self._passes.logprobs(batch, objective.temperature)
        with recomputing(self._recompute):
            new, entropy = self._passes.logprobs(batch, objective.temperature)
        return new, entropy, reference

    def _count(
        self,
        sums: _Sums,
        packs: list[Pack],
        old: Tensor,
        new: Tensor,
        entropy: Tensor,
        terms: LossTerms,
        value: float,
        computed: int,
    ) -> None:
        gap = new - old
        stats = torch.stack(
            [
                entropy.sum(),
                terms.kl,
                (gap.exp() - gap - 1.0).sum(),
                terms.clipped.float(),
                terms.ratio_max,
                gap.abs().max(),
                terms.truncated.float(),
                terms.masked.float(),
            ]
        ).tolist()
        sums.loss += value
        sums.tokens += len(new)
        sums.entropy += stats[0]
        sums.kl += stats[1]
        sums.mismatch_kl += stats[2]
        sums.clipped += stats[3]
        sums.ratio_max = max(sums.ratio_max, stats[4])
        sums.gap_max = max(sums.gap_max, stats[5])
        sums.truncated += stats[6]
        sums.masked += stats[7]
        sums.computed += computed
        sums.raw += sum(len(row.token_ids) for pack in packs for row in pack.rows)
        sums.micro_batches += 1

    def optim_step(self, lr: float, max_grad_norm: float) -> dict[str, float]:
        """Clip the gradient to `max_grad_norm`, step, clear it. Without a gradient nothing changes.

        Raises NonFiniteLossError, with weights and optimizer untouched, when the gradient's norm is not finite.
        """
        parameters = list(self.parameters.values())
        if all(p.grad is None for p in parameters):
            return {"grad_norm": 0.0, "lr": lr}
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
        if not math.isfinite(norm):
            self.drop_gradient()
            raise NonFiniteLossError(f"the gradient's norm is {norm}; the step was skipped")
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.drop_gradient()
        return {"grad_norm": norm, "lr": lr}

    def drop_gradient(self) -> None:
        """Forget what was accumulated."""
        self.optimizer.zero_grad(set_to_none=True)

    def score(self, rows: Sequence[TrainingRow], temperature: float = 1.0) -> list[list[float]]:
        """Log-probability of every trained token of each row, in the order given (no gradient)."""
        numbers = {id(row): i for i, row in enumerate(rows)}
        results: list[list[float]] = [[] for _ in rows]
        groups = bucket(make_packs(rows, self.form, self.token_budget), self.token_budget)
        idle = [[idle_pack()]] * (self._passes.agreed(len(groups)) - len(groups))
        for group in [*groups, *idle]:
            batch = collate(group, self._pad, self._device)
            with torch.no_grad():
                logprobs, _ = self._passes.logprobs(batch, temperature)
            members = [row for pack in group for row in pack.rows]
            for place, value in zip(batch.row.tolist(), logprobs.tolist(), strict=True):
                if (number := numbers.get(id(members[place]))) is not None:
                    results[number].append(value)
        self._passes.end()
        return results
