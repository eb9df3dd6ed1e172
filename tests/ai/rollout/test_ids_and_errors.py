"""Ids that become folder names, and what an exception means for a rollout."""

import pytest

from osmosis_ai.rollout import RolloutErrorCategory
from osmosis_ai.rollout.utils.errors import categorize_exception
from osmosis_ai.rollout.utils.identifiers import ensure_single_path_segment, is_single_path_segment


@pytest.mark.parametrize("name", ["r1", "rollout-xyz", "abc_123", "6d0b8b38-6d2b-4f43-9d1a-1c2f0a3c9a10"])
def test_safe_ids(name):
    assert is_single_path_segment(name)
    assert ensure_single_path_segment(name) == name


@pytest.mark.parametrize("name", ["../other", "a/b", "a\\b", "/etc", "\\etc", "a\0b", "..", ".", ""])
def test_unsafe_ids(name):
    assert not is_single_path_segment(name)
    with pytest.raises(ValueError, match="rollout_id"):
        ensure_single_path_segment(name, label="rollout_id")


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError(), RolloutErrorCategory.TIMEOUT),
        (ValueError(), RolloutErrorCategory.VALIDATION_ERROR),
        (TypeError(), RolloutErrorCategory.VALIDATION_ERROR),
        (AssertionError(), RolloutErrorCategory.VALIDATION_ERROR),
        (UnicodeError(), RolloutErrorCategory.VALIDATION_ERROR),
        (OSError(), RolloutErrorCategory.AGENT_ERROR),
        (KeyError(), RolloutErrorCategory.AGENT_ERROR),
    ],
)
def test_categories(error, category):
    assert categorize_exception(error) == category
