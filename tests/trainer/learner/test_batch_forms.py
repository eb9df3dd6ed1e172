"""One by one = padded = packed = shared: how rows are put into forward passes never changes the result."""

from __future__ import annotations

import pytest
import torch

from osmosis_trainer.engines.protocol import Objective
from osmosis_trainer.errors import NonFiniteLossError
from osmosis_trainer.learner.packs import bucket, make_packs
from osmosis_trainer.learner.step import Learner

EVERY = [
    Objective("clip"),
    Objective("grpo", kl_coef=0.1),
    Objective("gspo"),
    Objective("dr_grpo", max_completion_tokens=20, temperature=0.8),
    Objective("cispo"),
]


def relative(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())


@pytest.mark.parametrize("objective", EVERY, ids=lambda o: o.loss)
def test_forms_and_micro_batches_agree(make_learner, rows, gradient, objective):
    alone = make_learner(form="padded", token_budget=1)
    wanted = alone.forward_backward(rows, objective)
    wanted_gradient = gradient(alone)
    assert wanted["micro_batches"] == len(rows)
    scores = alone.score(rows)
    forms = [
        ("padded", 8192),
        ("padded", 200),
        ("packed", 8192),
        ("packed", 1),
        ("shared", 8192),
        ("shared", 1),
    ]
    for form, budget in [*forms, ("auto", 8192)]:
        learner = make_learner(form=form, token_budget=budget)
        got = learner.forward_backward(rows, objective)
        for key in ("loss", "entropy", "kl", "mismatch_kl", "clip_ratio", "ratio_max", "tokens"):
            assert got[key] == pytest.approx(wanted[key], rel=1e-5, abs=1e-6), (form, budget, key)
        assert relative(gradient(learner), wanted_gradient) <= 1e-5, (form, budget)
        for mine, theirs in zip(learner.score(rows), scores, strict=True):
            assert max(abs(a - b) for a, b in zip(mine, theirs, strict=True)) <= 5e-6


def test_forms_agree_to_the_last_digits_in_double_precision(make_learner, rows, gradient):
    gradients = []
    for form, budget in [("padded", 1), ("padded", 8192), ("packed", 8192), ("shared", 8192)]:
        learner = make_learner(form=form, token_budget=budget, double=True)
        learner.forward_backward(rows, Objective())
        gradients.append(gradient(learner))
    # The norms and the sampler's log-probabilities stay in single precision.
    for other in gradients[1:]:
        assert relative(other, gradients[0]) <= 1e-6


def test_several_calls_make_one_step(make_learner, rows, gradient):
    learner = make_learner()
    learner.forward_backward(rows, Objective("clip"))
    whole = gradient(learner)
    parts = Objective("clip", total_tokens=sum(sum(r.mask) for r in rows), total_rows=len(rows))
    learner.forward_backward(rows[:3], parts)
    learner.forward_backward(rows[3:], parts)
    assert relative(gradient(learner), whole) <= 1e-6


def test_sharing_computes_each_common_token_once(rows):
    shared = make_packs(rows, "shared")
    folded = shared[0]
    distinct = {tuple(row.token_ids[: i + 1]) for row in rows[:4] for i in range(len(row.token_ids))}
    assert folded.length == len(distinct)
    for row, path in zip(folded.rows, folded.paths, strict=True):
        assert folded.tokens[path].tolist() == row.token_ids
        assert folded.positions[path].tolist() == list(range(len(row.token_ids)))
        for depth, place in enumerate(path):
            assert sorted(folded.visible[place].nonzero()[0]) == sorted(path[: depth + 1])
    assert len(make_packs(rows, "padded")) == len(rows)
    # Group 0 is mostly prompt and worth folding; group 1 is not, and is packed.
    assert [len(pack.rows) for pack in make_packs(rows, "auto")] == [4, 4]


def test_packed_rows_are_blind_to_each_other(rows, monkeypatch):
    from osmosis_trainer.learner import packs

    (whole,) = make_packs(rows, "packed")
    assert whole.length == sum(len(row.token_ids) for row in rows)
    for row, path in zip(whole.rows, whole.paths, strict=True):
        assert whole.tokens[path].tolist() == row.token_ids
        assert whole.positions[path].tolist() == list(range(len(row.token_ids)))
        for depth, place in enumerate(path):
            assert whole.visible[place].nonzero()[0].tolist() == path[: depth + 1].tolist()
    longest = max(len(row.token_ids) for row in rows)
    monkeypatch.setattr(packs, "PACK_TOKENS", longest - 1)
    made = make_packs(rows, "packed")
    assert sorted(row.row_id for pack in made for row in pack.rows) == sorted(row.row_id for row in rows)
    assert all(
        pack.length < longest or pack.visible is None for pack in made
    )  # a row that is too long stays alone
    assert len(made) < len(rows)


def test_buckets_respect_the_budget_and_lose_nothing(rows):
    packs = make_packs(rows, "padded")
    for budget in (1, 100, 170, 1000):
        groups = bucket(packs, budget)
        assert sorted(p.rows[0].row_id for group in groups for p in group) == sorted(r.row_id for r in rows)
        for group in groups:
            assert len(group) == 1 or len(group) * max(p.length for p in group) <= budget


def test_observed_tokens_carry_no_gradient(make_learner, rows):
    """The gradient reaches the head only through positions that predict sampled tokens."""
    learner: Learner = make_learner(form="padded", token_budget=1)
    head = learner.base.lm_head
    row = rows[0]
    for wanted in (True, False):
        head.weight.requires_grad_(True)
        head.weight.grad = None
        mask = [m if wanted else 0 for m in row.mask]
        learner.forward_backward([type(row)(row.token_ids, mask, row.logprobs, 1.0, 0, "x")], Objective())
        if not wanted:
            assert head.weight.grad is None
            assert all(p.grad is None for p in learner.parameters.values())
        learner.drop_gradient()
    # Changing what a tool returned after the last sampled token changes nothing at all.
    trained = [i for i, m in enumerate(row.mask) if m]
    tail = [9] * 5
    longer = type(row)(
        row.token_ids + tail, row.mask + [0] * 5, row.logprobs + [0.0] * 5, row.advantage, row.group, "longer"
    )
    assert trained
    head.weight.requires_grad_(False)
    learner.forward_backward([row], Objective())
    before = [p.grad.clone() for p in learner.parameters.values()]
    learner.drop_gradient()
    learner.forward_backward([longer], Objective())
    for mine, theirs in zip(learner.parameters.values(), before, strict=True):
        assert torch.allclose(mine.grad, theirs, rtol=1e-4, atol=1e-7)


def test_logits_in_blocks_are_the_same(make_learner, rows, gradient, monkeypatch):
    from osmosis_trainer.learner import logprobs

    learner = make_learner()
    learner.forward_backward(rows, Objective())
    whole = gradient(learner)
    monkeypatch.setattr(logprobs, "_BLOCK_ELEMENTS", 64 * 7)
    learner.forward_backward(rows, Objective())
    assert relative(gradient(learner), whole) <= 1e-6


def test_out_of_memory_halves_the_budget_and_starts_over(make_learner, rows, gradient, monkeypatch):
    learner = make_learner(form="padded")
    learner.forward_backward(rows, Objective())
    wanted = gradient(learner)
    from osmosis_trainer.learner import passes

    honest, calls = passes.token_logprobs, []

    def tight(model, batch, temperature):
        calls.append(batch.ids.numel())
        if batch.ids.numel() > 300:
            raise torch.OutOfMemoryError("out of memory")
        return honest(model, batch, temperature)

    monkeypatch.setattr(passes, "token_logprobs", tight)
    learner.forward_backward(rows, Objective())
    assert max(calls) > 300 >= calls[-1]
    assert relative(gradient(learner), wanted) <= 1e-6


def test_a_loss_that_is_not_finite_drops_the_gradient(make_learner, rows):
    learner = make_learner()
    bad = type(rows[0])(rows[0].token_ids, rows[0].mask, [-1e4] * len(rows[0].mask), 1.0, 0, "bad")
    with pytest.raises(NonFiniteLossError, match="loss"):
        learner.forward_backward([*rows[1:], bad], Objective("is"))
    assert all(p.grad is None for p in learner.parameters.values())
    before = {name: p.detach().clone() for name, p in learner.parameters.items()}
    assert learner.optim_step(1e-2, 1.0)["grad_norm"] == 0.0
    learner.forward_backward(rows, Objective())
    next(iter(learner.parameters.values())).grad.fill_(float("inf"))
    with pytest.raises(NonFiniteLossError, match="norm"):
        learner.optim_step(1e-2, 1.0)
    assert all(torch.equal(before[name], p) for name, p in learner.parameters.items())


@pytest.mark.parametrize("form", ["padded", "packed", "shared"])
def test_computing_layers_again_changes_nothing(make_learner, rows, gradient, form):
    plain, thrifty = make_learner(form=form), make_learner(form=form, recompute=True)
    kept = {}
    for name, learner in (("plain", plain), ("thrifty", thrifty)):
        kept[name] = 0

        def count(tensor, name=name):
            kept[name] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            got = learner.forward_backward(rows, Objective("grpo", kl_coef=0.1))
        assert got["tokens"] > 0
    assert torch.equal(gradient(thrifty), gradient(plain))
    assert kept["thrifty"] < 0.6 * kept["plain"]
    assert thrifty.score(rows) == plain.score(rows)


def test_another_thread_does_not_notice(make_learner, rows):
    import threading

    from osmosis_trainer.learner import recompute

    learner = make_learner(recompute=True)
    layer = learner.base.base_model.layers[0]
    seen = []
    with recompute.recomputing(True):
        thread = threading.Thread(target=lambda: seen.append(getattr(recompute._active, "on", False)))
        thread.start()
        thread.join()
    assert seen == [False]
    assert layer.forward.__wrapped__ is not None
