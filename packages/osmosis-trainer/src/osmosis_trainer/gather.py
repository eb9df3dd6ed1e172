"""Collecting a step: rows in, prompt groups and training rows out."""

from __future__ import annotations

import time

from osmosis_trainer.collect.batch import make_batch
from osmosis_trainer.collect.gathered import Gathered
from osmosis_trainer.collect.journal import Journal
from osmosis_trainer.collect.order import DataOrder
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.parts import Parts


async def collect(parts: Parts, order: DataOrder, step: int, *, finished_by: int | None = None) -> Gathered:
    """The prompt groups of a step, refilled, and the rows they give; only tokens of the policy that collects count.

    `finished_by`: the policy version that sampled all of it before; it is read from the journal alone. When the disk is full
    the step is collected again once there is room, with what its journal has.
    """
    position = order.position

    async def attempt() -> Gathered:
        order.position = position
        return await _collect(parts, order, step, finished_by)

    return await parts.with_room(f"the journal of step {step}", attempt)


async def _collect(parts: Parts, order: DataOrder, step: int, finished_by: int | None) -> Gathered:
    began, settings, advanced = time.perf_counter(), parts.settings.training, parts.settings.advanced
    position, digest = order.position, order.digest()
    version = parts.engine.policy_version if finished_by is None else finished_by
    journal = Journal(parts.journals, step)
    try:
        groups = await parts.collector(journal, replay=finished_by is not None).step(
            step,
            order,
            batch=settings.rollout_batch_size,
            samples=settings.n_samples_per_prompt,
            refill_limit=advanced.refill_limit,
        )
        batch = make_batch(
            groups,
            lambda rewards: group_advantages(rewards, scale_rewards=advanced.scale_rewards),
            mask_truncated=advanced.mask_truncated,
            oldest_version=version,
            max_row_tokens=parts.engine.max_context,
        )
    except BaseException:
        journal.close()
        raise
    return Gathered(step, journal, groups, batch, version, position, digest, time.perf_counter() - began)
