"""The keys of eval and training configs: type, default, range and purpose, as data.

The loader, the server-side validation and the documentation table (docs/configuration.md) all read these tuples.
"""

from dataclasses import dataclass
from typing import Any, Literal

RunKind = Literal["eval", "training"]
ValueType = Literal["int", "float", "bool", "str", "table"]

TINY_MODEL_PREFIX = "osmosis/tiny-"
TINY_LR_DEFAULT = 2e-3
TINY_LR_MAX = 1e-1
LR_WARN_BELOW = 1e-5


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a config table.

    ``minimum`` and ``maximum`` are inclusive unless ``above`` is set: then the value must be greater than ``minimum``.
    A key whose ``default`` is ``None`` may be left out; it has no other way to say "not set".
    """

    name: str
    type: ValueType
    default: Any
    purpose: str
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    choices: tuple[str, ...] = ()
    keys: tuple["Key", ...] = ()

    @property
    def range_text(self) -> str:
        """The allowed values in words, as printed in messages and in the documentation."""
        if self.type == "bool":
            return "true or false"
        if self.choices:
            return ", ".join(self.choices)
        if self.type == "table":
            return "a table with " + ", ".join(key.name for key in self.keys)
        if self.type == "str":
            return "any text"
        low = "" if self.minimum is None else f"{'>' if self.above else '>='} {self.minimum:g}"
        high = "" if self.maximum is None else f"<= {self.maximum:.10g}"
        return " and ".join(part for part in (low, high) if part) or "any finite number"

    @property
    def default_text(self) -> str:
        """The default as TOML, or ``-`` when there is none."""
        if self.default is None or self.type == "table":
            return "-"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f'"{self.default}"' if isinstance(self.default, str) else f"{self.default}"


@dataclass(frozen=True, slots=True)
class ExperimentKey:
    """One key of ``[experiment]``; all of them are strings."""

    name: str
    required: bool
    purpose: str


EXPERIMENT = (
    ExperimentKey("rollout", True, "Name of the rollout: its folder below rollouts/"),
    ExperimentKey("entrypoint", True, "Python file of the rollout, relative to its folder"),
    ExperimentKey("model_path", True, "Model to evaluate, or base model to train"),
    ExperimentKey("dataset", True, "Name of a dataset on the platform"),
    ExperimentKey("branch", False, "Run the head of this pushed branch; excludes commit_sha"),
    ExperimentKey(
        "commit_sha", False, "Run exactly this commit (7 to 40 hexadecimal digits); excludes branch"
    ),
)

_DAY = 86_400
_SEED_MAX = 2**31 - 1

_TIMEOUTS = (
    Key("agent_workflow_timeout_s", "float", 450, "Seconds one agent workflow may take", 0, _DAY, above=True),
    Key("grader_timeout_s", "float", 150, "Seconds one grading may take", 0, _DAY, above=True),
)

EVALUATION = (
    Key(
        "limit",
        "int",
        None,
        "Evaluate the first N rows; without it a random tenth of the dataset",
        1,
        10_000_000,
    ),
    Key("n", "int", 1, "Attempts per row; more than one gives pass@k", 1, 1024),
    Key(
        "batch_size",
        "int",
        None,
        "Rows evaluated at a time, each with its n attempts; without it the rollout server's capacity",
        1,
        4096,
    ),
    Key("pass_threshold", "float", 1.0, "An attempt passes when its reward is at least this"),
    *_TIMEOUTS,
)

TRAINING = (
    Key(
        "lr",
        "float",
        4e-5,
        "Learning rate of the adapter (tiny models: default 0.002, up to 0.1)",
        0,
        5e-4,
        above=True,
    ),
    Key("total_epochs", "int", 1, "Passes over the training rows", 1, 10_000),
    Key("n_samples_per_prompt", "int", 8, "Rollouts per prompt, compared with each other", 2, 1024),
    Key("rollout_batch_size", "int", 32, "Prompts per step", 1, 4096),
    Key("max_prompt_length", "int", 8192, "Longest prompt in tokens; longer rows are left out", 1, 1_048_576),
    Key("max_response_length", "int", 8192, "Longest rollout after the prompt in tokens", 1, 1_048_576),
    *_TIMEOUTS,
)

SAMPLING = (
    Key("rollout_temperature", "float", 1.0, "Sampling temperature of rollouts", 0, 2, above=True),
    Key("rollout_top_p", "float", 1.0, "Nucleus sampling mass of rollouts", 0, 1, above=True),
)

CHECKPOINTS = (
    Key("eval_interval", "int", 10, "Measure the validation rows every N steps", 1, 1_000_000),
    Key("checkpoint_save_freq", "int", 20, "Save a LoRA checkpoint every N steps", 1, 1_000_000),
)

ENGINES = ("local", "split", "tinker")
LOSSES = ("clip", "is", "grpo", "dr_grpo", "dapo", "gspo", "cispo")

TRAINING_ADVANCED = (
    Key("seed", "int", 0, "Seed of row order, sampling and initial adapter", 0, _SEED_MAX),
    Key("max_steps", "int", None, "Stop after this many steps", 1, 10_000_000),
    Key("validation_rows", "int", 32, "Rows held out for validation; 0 holds none out", 0, 100_000),
    Key("loss", "str", "clip", "Policy objective", choices=LOSSES),
    Key("scale_rewards", "bool", False, "Divide advantages by the standard deviation of their group"),
    Key("clip_low", "float", 0.2, "Lower clip of the probability ratio: 1 - clip_low", 0, 1, above=True),
    Key("clip_high", "float", 0.28, "Upper clip of the probability ratio: 1 + clip_high", 0, 10, above=True),
    Key("ratio_upper_cap", "float", 3.0, "Cap of the ratio for tokens with a negative advantage", 1, 1000),
    Key("ratio_cap", "float", 5.0, "Cap of importance weights", 1, 1000),
    Key("kl_coef", "float", 0.0, "Weight of the divergence from the base model", 0, 10),
    Key("lora_rank", "int", 16, "Rank of the adapter", 1, 512),
    Key("lora_alpha", "float", 32, "Scale of the adapter: alpha / rank", 0, 4096, above=True),
    Key("weight_decay", "float", 0.0, "Decoupled weight decay", 0, 1),
    Key("warmup_ratio", "float", 0.05, "Share of the steps with a rising learning rate", 0, 1),
    Key("max_grad_norm", "float", 1.0, "Largest norm of a gradient", 0, 1000, above=True),
    Key("tokens_per_micro_batch", "int", 16384, "Tokens in one forward and backward pass", 1, 16_777_216),
    Key(
        "refill_limit", "int", 3, "Times a step may fetch new prompts for groups that cannot be used", 0, 100
    ),
    Key(
        "max_staleness",
        "int",
        0,
        "Policy versions between sampling and learning; 1 collects the next step's rollouts while a step learns",
        0,
        1,
    ),
    Key(
        "keep_checkpoints",
        "int",
        None,
        "Newest checkpoint folders kept by the trainer, beside the best; without it all",
        1,
        1_000_000,
    ),
    Key(
        "max_concurrent_rollouts",
        "int",
        None,
        "Rollouts in flight; without it the rollout server's capacity",
        1,
        4096,
    ),
    Key(
        "torch_threads", "int", None, "CPU threads of sampler and learner; without it half the cores", 1, 256
    ),
    Key("mask_truncated", "bool", True, "Leave rollouts that ran out of tokens out of the loss"),
    Key("max_completion_tokens", "int", None, "Longest single model answer in tokens", 1, 1_048_576),
    Key("engine", "str", "local", "Where sampling and learning run", choices=ENGINES),
    Key("tinker_url", "str", None, "Engine tinker: address of the server"),
    Key("tinker_key", "str", None, "Engine tinker: name of the secret with the server's API key"),
    Key("tinker_model", "str", None, "Engine tinker: the base model's name at the server, if it is another"),
    Key("split_servers", "str", None, "Engine split: addresses of the sampling servers, separated by commas"),
    Key("split_key", "str", None, "Engine split: name of the secret with the servers' API key"),
    Key("split_dialect", "str", "vllm", "Engine split: what the servers are", choices=("vllm", "sglang")),
    Key(
        "split_learners", "int", 1, "Engine split: learner processes; on GPUs each has one of its own", 1, 64
    ),
    Key(
        "split_sharding",
        "str",
        "none",
        "Engine split: fsdp spreads the base model over the learner processes",
        choices=("none", "fsdp"),
    ),
    Key("split_seeds", "bool", True, "Engine split: send a seed with every request"),
    Key(
        "split_timeout_s",
        "float",
        300,
        "Engine split: seconds a server may take to answer",
        0,
        _DAY,
        above=True,
    ),
    Key(
        "split_wait_s",
        "float",
        600,
        "Engine split: seconds to wait while no server is up",
        0,
        _DAY,
        above=True,
    ),
    Key(
        "split_tolerance",
        "float",
        None,
        "Engine split: nats by which a server may differ from the learner",
        0,
        1,
        above=True,
    ),
    Key(
        "package_index",
        "bool",
        False,
        "Let the rollout's environment install packages from the package index",
    ),
)

EVAL_POLICY = (
    Key("temperature", "float", None, "Temperature instead of the rollout's own", 0, 2),
    Key("top_p", "float", None, "Nucleus mass instead of the rollout's own", 0, 1, above=True),
    Key("max_tokens", "int", None, "Longest model answer instead of the rollout's own", 1, 1_048_576),
    Key("seed", "int", None, "Seed sent with every model call", 0, _SEED_MAX),
)

EVAL_ADVANCED = (
    Key("seed", "int", 0, "Seed of the row sample", 0, _SEED_MAX),
    Key(
        "package_index",
        "bool",
        False,
        "Let the rollout's environment install packages from the package index",
    ),
    Key("policy", "table", None, "Sampling settings that override the rollout's", keys=EVAL_POLICY),
)

SECTIONS: dict[RunKind, dict[str, tuple[Key, ...]]] = {
    "eval": {"evaluation": EVALUATION, "advanced": EVAL_ADVANCED},
    "training": {
        "training": TRAINING,
        "sampling": SAMPLING,
        "checkpoints": CHECKPOINTS,
        "advanced": TRAINING_ADVANCED,
    },
}


def is_tiny_model(model_path: str) -> bool:
    """Whether the base model is one of the small built-in ones, which need and allow larger learning rates."""
    return model_path.startswith(TINY_MODEL_PREFIX)
