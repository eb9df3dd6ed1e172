"""What must be true of a sample after grading."""

from osmosis_ai.rollout.types.sample import RolloutSample


def validate_sample_has_reward(sample: RolloutSample | None) -> None:
    """Check that there is a sample and that it is rewarded or removed.

    Raises:
        ValueError: when neither holds.
    """
    if sample is None:
        raise ValueError("No sample to grade: the workflow recorded no conversation")
    if sample.reward is None and not sample.remove_sample:
        raise ValueError(
            "Sample has no reward after grading: call ctx.set_reward(...) or set ctx.sample.remove_sample = True"
        )
