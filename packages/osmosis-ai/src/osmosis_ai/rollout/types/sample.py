"""The one sample of a rollout."""

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from osmosis_ai.rollout.types.deferred import built_on_first_use
from osmosis_ai.rollout.types.json_safe import json_safe_mapping

logger = logging.getLogger(__name__)

MessageDict = dict[str, Any]
Messages = list[dict[str, Any]]


@built_on_first_use
class RolloutSample(BaseModel, defer_build=True):
    """A conversation and its reward.

    ``messages`` are in the shape of the agent framework; graders and callbacks see them. ``trajectory_messages`` are chat
    messages for the saved trajectory: a copy of ``messages`` made at construction unless given, and None to save nothing.
    ``reward`` is a finite number; numbers, numeric text and booleans are converted, also on assignment.
    ``remove_sample`` takes the sample out of training and of the score.
    """

    model_config = ConfigDict(validate_assignment=True)

    messages: Sequence[Mapping[str, Any]] = Field(default_factory=list)
    trajectory_messages: Sequence[Mapping[str, Any]] | None = None
    label: str | None = None
    reward: float | None = Field(default=None, allow_inf_nan=False)
    remove_sample: bool = False
    metrics: dict[Any, Any] = Field(default_factory=dict)
    extra_fields: dict[Any, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _snapshot_trajectory(self) -> Self:
        # Validators run again on every assignment; a set field marks the snapshot as taken.
        if "trajectory_messages" in self.model_fields_set:
            return self
        snapshot: Sequence[Mapping[str, Any]] | None
        try:
            snapshot = copy.deepcopy(self.messages)
        except Exception as error:
            logger.warning("Failed to snapshot messages for trajectory persistence: %s", error)
            snapshot = None
        self.__dict__["trajectory_messages"] = snapshot
        self.__pydantic_fields_set__.add("trajectory_messages")
        return self

    def json_safe_copy(self) -> "RolloutSample":
        """This sample with ``metrics`` and ``extra_fields`` fit for JSON; the sample itself when nothing needed fixing.

        Conversion rules: :func:`osmosis_ai.rollout.types.json_safe.json_safe_mapping`. One warning names dropped types.
        """
        metrics, dropped_metrics = json_safe_mapping(self.metrics)
        extra_fields, dropped_extra = json_safe_mapping(self.extra_fields)
        if metrics is self.metrics and extra_fields is self.extra_fields:
            return self
        if dropped := dropped_metrics | dropped_extra:
            logger.warning(
                "Dropped values that JSON cannot carry from the sample's metrics or extra_fields: %s",
                sorted(dropped),
            )
        return self.model_copy(update={"metrics": dict(metrics), "extra_fields": dict(extra_fields)})
