"""What the platform checks in a submit request."""

import math

import pytest

from osmosis_ai.config import Submission, validate_submission
from osmosis_ai.config.schema import SECTIONS, Key
from osmosis_ai.config.submission import value_problem

EXPERIMENT = {"rollout": "calc", "entrypoint": "main.py", "model_path": "Qwen/Qwen3", "dataset": "d"}
TINY = {**EXPERIMENT, "model_path": "osmosis/tiny-multiply"}


def body(experiment=None, **parts):
    return {"experiment_config": experiment or EXPERIMENT, **parts}


def issues_of(kind, request):
    found = validate_submission(kind, request)
    assert isinstance(found, list), found
    return {issue["key"]: issue for issue in found}


@pytest.mark.parametrize("kind", ["eval", "training"])
def test_every_key_has_its_default_filled_in(kind):
    accepted = validate_submission(kind, body())
    assert isinstance(accepted, Submission)
    assert set(accepted.config) == {"experiment", *SECTIONS[kind]}
    for section, keys in SECTIONS[kind].items():
        assert set(accepted.config[section]) == {key.name for key in keys}
        for key in keys:
            expected = {} if key.type == "table" else key.default
            assert accepted.config[section][key.name] == expected, f"{section}.{key.name}"
    assert accepted.warnings == []


def test_documented_defaults():
    training = validate_submission("training", body()).config
    assert training["training"]["lr"] == 4e-5
    assert training["training"]["n_samples_per_prompt"] == 8
    assert training["checkpoints"] == {"eval_interval": 10, "checkpoint_save_freq": 20}
    evaluation = validate_submission("eval", body()).config["evaluation"]
    assert evaluation == {
        "limit": None,
        "n": 1,
        "batch_size": None,
        "pass_threshold": 1.0,
        "agent_workflow_timeout_s": 450,
        "grader_timeout_s": 150,
    }


@pytest.mark.parametrize(
    ("kind", "section", "key"),
    [
        (kind, section, key)
        for kind, tables in SECTIONS.items()
        for section, keys in tables.items()
        for key in keys
    ],
    ids=lambda value: value.name if isinstance(value, Key) else str(value),
)
def test_every_key_refuses_a_wrong_type(kind, section, key):
    wrong = {"int": 1.5, "float": "1", "bool": 1, "str": 1, "table": 1}[key.type]
    assert f"{section}.{key.name}" in issues_of(kind, body(**{f"{section}_config": {key.name: wrong}}))


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        (Key("k", "int", 1, "", 1, 8), [1, 8], [0, 9, True, "1", 1.0, None]),
        (Key("k", "float", 1, "", 0, 2, above=True), [0.001, 2, 1], [0, 2.001, math.nan, math.inf, False]),
        (Key("k", "float", 1, ""), [-5, 0.0], [math.inf, "0"]),
        (Key("k", "str", "a", "", choices=("a", "b")), ["a"], ["c", 1]),
        (Key("k", "bool", False, ""), [True, False], [0, "true"]),
    ],
)
def test_ranges_are_inclusive_unless_above(key, good, bad):
    assert [value_problem(key, value) for value in good] == [None] * len(good)
    assert all(value_problem(key, value) for value in bad)


def test_all_problems_come_at_once():
    found = issues_of(
        "training",
        body(
            {**EXPERIMENT, "rollout": "a/b", "branch": "x", "commit_sha": "zz"},
            training_config={"lrr": 1, "total_epochs": 0},
            sampling_config={"rollout_top_p": 2},
            advanced_config={"loss": "gpso"},
            env_config={"_OSMOSIS_A": "1"},
            secrets={"required": ["A", "A"]},
            extra_config={},
        ),
    )
    assert set(found) == {
        "extra_config",
        "experiment.rollout",
        "experiment.commit_sha",
        "experiment",
        "training.lrr",
        "training.total_epochs",
        "sampling.rollout_top_p",
        "advanced.loss",
        "env._OSMOSIS_A",
        "secrets.required",
    }
    assert found["training.lrr"]["key_correction"] == "training.lr"
    assert "gspo" in found["advanced.loss"]["message"]


@pytest.mark.parametrize(
    ("experiment", "lr", "refused", "warned"),
    [
        (EXPERIMENT, 5e-4, False, False),
        (EXPERIMENT, 5.1e-4, True, False),
        (EXPERIMENT, 1e-6, False, True),
        (EXPERIMENT, 1e-5, False, False),
        (EXPERIMENT, 0, True, False),
        (TINY, 1e-1, False, False),
        (TINY, 0.11, True, False),
    ],
)
def test_learning_rates_fit_the_size_of_the_model(experiment, lr, refused, warned):
    result = validate_submission("training", body(experiment, training_config={"lr": lr}))
    assert isinstance(result, list) is refused
    if not refused:
        assert bool(result.warnings) is warned


def test_tiny_models_learn_faster_by_default():
    assert validate_submission("training", body(TINY)).config["training"]["lr"] == 2e-3


def test_eval_policy_holds_only_what_was_set():
    accepted = validate_submission("eval", body(advanced_config={"policy": {"temperature": 0.0}}))
    assert accepted.config["advanced"]["policy"] == {"temperature": 0.0}
    found = issues_of("eval", body(advanced_config={"policy": {"temperatur": 1, "top_p": 0}}))
    assert found["advanced.policy.temperatur"]["key_correction"] == "advanced.policy.temperature"
    assert "advanced.policy.top_p" in found


def test_provided_secrets_must_be_required_and_stay_out_of_repr():
    accepted = validate_submission("eval", body(secrets={"required": ["A"], "provided": {"A": "s3cret"}}))
    assert accepted.provided == {"A": "s3cret"}
    assert "s3cret" not in repr(accepted)
    assert "secrets.provided" in issues_of("eval", body(secrets={"provided": {"A": "x"}}))


@pytest.mark.parametrize("request_body", [None, [], "x", {}, {"experiment_config": 1}])
def test_hopeless_bodies_are_issues_not_exceptions(request_body):
    assert isinstance(validate_submission("eval", request_body), list)


@pytest.mark.parametrize("entrypoint", ["../main.py", "/main.py", "main.txt", "a\\b.py"])
def test_entrypoints_stay_inside_the_rollout(entrypoint):
    assert "experiment.entrypoint" in issues_of("eval", body({**EXPERIMENT, "entrypoint": entrypoint}))


def test_answers_cannot_be_longer_than_rollouts():
    request = body(training_config={"max_response_length": 10}, advanced_config={"max_completion_tokens": 11})
    assert "advanced.max_completion_tokens" in issues_of("training", request)
