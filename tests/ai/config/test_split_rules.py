"""What the split engine cannot honour is refused when a training is submitted."""

from typing import Any

import pytest

from osmosis_ai.config import Submission, validate_submission

EXPERIMENT = {"rollout": "calc", "entrypoint": "main.py", "model_path": "Qwen/Qwen3", "dataset": "d"}


def submit(advanced: dict[str, Any], required: tuple[str, ...] = (), **parts: Any) -> Any:
    secrets = {"required": list(required)}
    body = {"experiment_config": EXPERIMENT, "advanced_config": advanced, "secrets": secrets, **parts}
    return validate_submission("training", body)


def test_a_run_with_servers_and_a_key_is_accepted() -> None:
    advanced = {
        "engine": "split",
        "split_servers": "http://10.0.0.1:8001, https://gpu.example.com/pool",
        "split_key": "VLLM_KEY",
        "split_learners": 2,
        "split_sharding": "fsdp",
        "split_tolerance": 0.01,
    }
    accepted = submit(advanced, ("VLLM_KEY",), sampling_config={"rollout_top_p": 0.9})
    assert isinstance(accepted, Submission), accepted
    assert accepted.config["advanced"]["split_dialect"] == "vllm"


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"engine": "local"}, "advanced.split_servers", 'needs engine = "split"'),
        ({"engine": "local", "split_servers": None, "split_learners": 2}, "advanced.split_learners", "needs"),
        ({"split_servers": "http://a, ftp://b"}, "advanced.split_servers", "http:// or https://"),
        ({"split_servers": "http://me:hunter2@b"}, "advanced.split_servers", "without user"),
        ({"split_servers": "http://a,http://a/"}, "advanced.split_servers", "names a server twice"),
        ({"split_key": "KEY"}, "advanced.split_key", "must be listed in secrets.required"),
        ({"split_learners": 0}, "advanced.split_learners", ">= 1"),
        ({"split_sharding": "fsdp"}, "advanced.split_sharding", "set split_learners to 2 or more"),
        ({"split_sharding": "ddp"}, "advanced.split_sharding", "fsdp"),
        ({"split_dialect": "vlm"}, "advanced.split_dialect", "did you mean 'vllm'"),
    ],
)
def test_each_refusal_names_the_key_and_the_reason(changes: dict[str, Any], key: str, words: str) -> None:
    [found] = submit({"engine": "split", "split_servers": "http://a", **changes})
    assert (found["key"], words in found["message"]) == (key, True), found
    assert "hunter2" not in str(found)


def test_sglang_knows_no_top_p() -> None:
    [found] = submit({"engine": "split", "split_dialect": "sglang"}, sampling_config={"rollout_top_p": 0.5})
    assert found["key"] == "sampling.rollout_top_p"
    assert "must be 1 with SGLang servers" in found["message"]
