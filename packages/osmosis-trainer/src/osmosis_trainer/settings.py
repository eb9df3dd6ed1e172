"""Typed settings of a training run: the sections of the submitted configuration with their defaults and ranges.

The worker spec carries the configuration as nested dictionaries. Everything is checked here, once; the rest of the
trainer trusts what it gets. `docs/training.md` describes every option for users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osmosis_trainer.engines.protocol import LossName, Objective
from osmosis_trainer.errors import ConfigError

Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class TrainingSection(_Section):
    """`[training]`: how much is trained, how fast, and how long a rollout may be."""

    lr: Annotated[float, Field(gt=0)] = 4e-5
    total_epochs: Positive = 1
    n_samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    rollout_batch_size: Positive = 32
    max_prompt_length: Positive = 8192
    max_response_length: Positive = 8192
    agent_workflow_timeout_s: Seconds = 450.0
    grader_timeout_s: Seconds = 150.0


class SamplingSection(_Section):
    """`[sampling]`: the distribution rollouts are sampled from."""

    rollout_temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    rollout_top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


class CheckpointsSection(_Section):
    """`[checkpoints]`: cadence in training steps."""

    eval_interval: Positive = 10
    checkpoint_save_freq: Positive = 20


class AdvancedSection(_Section):
    """`[advanced]`: everything else. `None` means that the trainer decides, by the rule in docs/training.md."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    max_steps: Positive | None = None
    validation_rows: Annotated[int, Field(ge=0)] = 32
    loss: LossName = "clip"
    scale_rewards: bool = False
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(gt=0)] = 0.28
    ratio_upper_cap: Annotated[float, Field(ge=1)] | None = 3.0
    ratio_cap: Annotated[float, Field(gt=0)] = 5.0
    kl_coef: Annotated[float, Field(ge=0)] = 0.0
    lora_rank: Positive = 16
    lora_alpha: Annotated[float, Field(gt=0)] = 32.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    warmup_ratio: Annotated[float, Field(ge=0, le=1)] = 0.05
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    tokens_per_micro_batch: Positive = 16384
    refill_limit: Annotated[int, Field(ge=0)] = 3
    max_staleness: Annotated[int, Field(ge=0, le=1)] = 0
    keep_checkpoints: Positive | None = None
    max_concurrent_rollouts: Positive | None = None
    torch_threads: Positive | None = None
    mask_truncated: bool = True
    max_completion_tokens: Positive | None = None
    engine: Literal["local", "split", "tinker"] = "local"
    tinker_url: str | None = None
    tinker_key: str | None = None
    tinker_model: str | None = None
    split_servers: str | None = None
    split_key: str | None = None
    split_dialect: Literal["vllm", "sglang"] = "vllm"
    split_learners: Annotated[int, Field(ge=1, le=64)] = 1
    split_sharding: Literal["none", "fsdp"] = "none"
    split_seeds: bool = True
    split_timeout_s: Seconds = 300.0
    split_wait_s: Seconds = 600.0
    split_tolerance: Annotated[float, Field(gt=0, le=1)] | None = None
    package_index: bool = False  # for the process that prepares the rollout's environment; not used here


# Options that may change while a run is interrupted: they leave the numbers alone.
NEUTRAL = (
    "keep_checkpoints",
    "max_concurrent_rollouts",
    "torch_threads",
    "package_index",
    "tinker_url",
    "tinker_key",
    "split_servers",
    "split_key",
    "split_learners",
    "split_sharding",
    "split_timeout_s",
    "split_wait_s",
    "split_tolerance",
)


# Largest weight of a token from a sampler that is another program than the learner.
EXTERNAL_MISMATCH_CAP = 2.0
EXTERNAL_SAMPLERS = ("split", "tinker")


class RunSettings(_Section):
    """All settings of one training run."""

    training: TrainingSection = TrainingSection()
    sampling: SamplingSection = SamplingSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    advanced: AdvancedSection = AdvancedSection()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RunSettings:
        """Read the sections of a submitted configuration; raises ConfigError naming every field that is wrong.

        `[experiment]`, `[env]` and `[secrets]` belong to the platform and are not looked at.
        """
        known = {name: config[name] for name in cls.model_fields if config.get(name) is not None}
        strange = sorted(set(config) - set(cls.model_fields) - {"experiment", "env", "secrets"})
        if strange:
            raise ConfigError(
                f"unknown configuration section [{strange[0]}]; known are {', '.join(cls.model_fields)}"
            )
        try:
            settings = cls.model_validate(known)
        except ValidationError as error:
            wrong = "; ".join(
                f"[{item['loc'][0]}] {'.'.join(map(str, item['loc'][1:]))}: {item['msg']} (got {item['input']!r})"
                for item in error.errors()
            )
            raise ConfigError(f"the training configuration is not valid: {wrong}") from None
        return settings

    def total_steps(self, rows: int) -> int:
        """Optimizer steps of the whole run for a training set of `rows` rows."""
        if self.advanced.max_steps is not None:
            return self.advanced.max_steps
        return math.ceil(rows / self.training.rollout_batch_size) * self.training.total_epochs

    def validation_rows(self, rows: int) -> int:
        """Rows held out of a dataset of `rows` rows: never more than a fifth, so that small datasets can be trained on."""
        return min(self.advanced.validation_rows, rows // 5)

    def validation_samples(self, rows: int) -> int:
        """Samples per validation row: enough for 64 in all, but no more than training takes."""
        return max(1, min(self.training.n_samples_per_prompt, 64 // rows)) if rows else 0

    def learning_rate(self, step: int, total_steps: int) -> float:
        """Rate of optimizer step `step` (from 1): linear over the first `warmup_ratio` of the run, then constant."""
        warmup = math.ceil(self.advanced.warmup_ratio * total_steps)
        return self.training.lr * min(1.0, step / warmup) if warmup else self.training.lr

    @property
    def external_sampler(self) -> bool:
        """Whether rollouts are sampled by another program than the learner."""
        return self.advanced.engine in EXTERNAL_SAMPLERS

    def objective(self) -> Objective:
        """What every step minimises."""
        advanced = self.advanced
        return Objective(
            loss=advanced.loss,
            clip_low=advanced.clip_low,
            clip_high=advanced.clip_high,
            negative_cap=advanced.ratio_upper_cap,
            ratio_cap=advanced.ratio_cap,
            kl_coef=advanced.kl_coef,
            temperature=self.sampling.rollout_temperature,
            mismatch_cap=EXTERNAL_MISMATCH_CAP if self.external_sampler else None,
            max_completion_tokens=advanced.max_completion_tokens or self.training.max_response_length,
        )

    def shaping(self) -> dict[str, dict[str, Any]]:
        """Every setting that shapes the numbers of a run, by section; a resumed run must have the same ones."""
        content: dict[str, dict[str, Any]] = self.model_dump(mode="json")
        return {
            section: {name: value for name, value in values.items() if name not in NEUTRAL}
            for section, values in content.items()
        }

    def warnings(self, *, tiny_model: bool = False) -> list[str]:
        """What a user should know about these settings although they are allowed. A `tiny_model` needs high rates."""
        found = []
        if self.training.lr < 1e-5:
            found.append(
                f"learning rate {self.training.lr:g} is low for a LoRA adapter (rates near 1e-6 are for full-parameter "
                "training); 4e-5 is a good start"
            )
        if self.training.lr > 5e-4 and not tiny_model:
            found.append(
                f"learning rate {self.training.lr:g} is high: right for tiny test models, unstable for models of 100M parameters and more"
            )
        if self.sampling.rollout_temperature != 1.0 or self.sampling.rollout_top_p != 1.0:
            found.append(
                f"sampling with temperature {self.sampling.rollout_temperature:g} and top-p {self.sampling.rollout_top_p:g}: "
                "log-probabilities are those of the processed distribution"
            )
        return found
