"""What an engine cannot honour is refused when a training is submitted, all of it at once."""

from typing import Any

import pytest

from osmosis_ai.config.submission import Submission, validate_submission


def submit(secrets: list[str] | None = None, sampling: dict[str, Any] | None = None, **advanced: Any) -> Any:
    return validate_submission(
        "training",
        {
            "experiment_config": {
                "rollout": "multiply",
                "entrypoint": "main.py",
                "model_path": "osmosis/tiny-multiply",
                "dataset": "multiply",
            },
            "sampling_config": sampling or {},
            "advanced_config": advanced,
            "secrets": {"required": secrets or []},
        },
    )


def test_a_tinker_run_with_its_key_among_the_secrets_is_accepted() -> None:
    accepted = submit(
        ["TINKER_API_KEY"], engine="tinker", tinker_url="https://host/path", tinker_key="TINKER_API_KEY"
    )
    assert isinstance(accepted, Submission)
    assert accepted.config["advanced"]["tinker_model"] is None
    assert isinstance(submit(engine="tinker", kl_coef=0.1, loss="gspo", lora_alpha=32.0), Submission)


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"lora_alpha": 16}, "advanced.lora_alpha", 'must be 32 with engine "tinker"'),
        ({"torch_threads": 2}, "advanced.torch_threads", "must be left out"),
        ({"sampling": {"rollout_temperature": 0.5}}, "sampling.rollout_temperature", "must be 1"),
        ({"sampling": {"rollout_top_p": 0.5}}, "sampling.rollout_top_p", "must be 1"),
        ({"tinker_key": "KEY"}, "advanced.tinker_key", "must be listed in secrets.required"),
        ({"tinker_url": "ftp://host"}, "advanced.tinker_url", "must be an http:// or https:// address"),
        ({"tinker_url": "http://me:hunter2@host"}, "advanced.tinker_url", "without user"),
        ({"tinker_url": "http://[::1"}, "advanced.tinker_url", "must be an http://"),
        ({"engine": "local", "tinker_url": "http://host"}, "advanced.tinker_url", 'needs engine = "tinker"'),
        ({"tinker_url": 5}, "advanced.tinker_url", "must be a string"),
    ],
)
def test_each_refusal_names_the_key_and_the_reason(changes: dict[str, Any], path: str, words: str) -> None:
    [found] = submit(**{"engine": "tinker", **changes})
    assert path in str(found)
    assert words in str(found)
    assert "hunter2" not in str(found)


def test_all_refusals_come_at_once() -> None:
    assert len(submit(engine="tinker", lora_alpha=8, torch_threads=1, sampling={"rollout_top_p": 0.5})) == 3
