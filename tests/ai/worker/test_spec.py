"""The spec on standard input, and the lifeline behind it."""

import io
import json
import subprocess
import sys

import pytest

from osmosis_ai.config.schema import SECTIONS
from osmosis_ai.worker.spec import EvalSpec, HostedPolicySpec, TrainSpec, WorkerSpecError, read_spec

COMMON = {
    "run_id": "r1",
    "run_name": "run",
    "api_url": "http://127.0.0.1:1",
    "run_token": "tok-secret",
    "work_dir": "/w",
    "rollout_url": "http://127.0.0.1:2",
    "rollout_instance_id": "i",
    "artifact_root": "/a",
    "dataset_path": "/d/rows.parquet",
    "dataset_rows": 10,
}
EVAL = {
    **COMMON,
    "kind": "eval",
    "config": {"experiment": {"rollout": "x"}, "evaluation": {"n": 2}, "advanced": {"policy": {"seed": 3}}},
    "policy": {"kind": "hosted", "base_url": "http://h/v1", "api_key": "key-secret", "model": "m"},
}


def read(spec):
    return read_spec(io.BytesIO(json.dumps(spec).encode() + b"\nmore"))


def test_an_evaluation_spec():
    spec = read(EVAL)
    assert isinstance(spec, EvalSpec)
    assert isinstance(spec.policy, HostedPolicySpec)
    assert spec.config.evaluation.n == 2
    assert spec.config.evaluation.agent_workflow_timeout_s == 450
    assert spec.config.advanced.policy.seed == 3
    assert "secret" not in repr(spec)


def test_the_submitted_config_with_its_defaults_is_understood():
    filled = {name: {key.name: key.default for key in keys} for name, keys in SECTIONS["eval"].items()}
    spec = read({**EVAL, "config": {"experiment": {}, **filled}})
    assert spec.config.evaluation.limit is None
    assert spec.config.evaluation.grader_timeout_s == 150
    assert spec.config.advanced.policy.temperature is None


def test_a_training_spec():
    spec = read(
        {
            **COMMON,
            "kind": "train",
            "config": {"training": {"lr": 1}},
            "base_model": {"name": "m", "path": "/m"},
        }
    )
    assert isinstance(spec, TrainSpec)
    assert spec.config["training"] == {"lr": 1}


def test_wrong_fields_are_named_and_secrets_are_not():
    with pytest.raises(WorkerSpecError) as caught:
        read({**EVAL, "dataset_rows": -1, "run_token": ["tok-secret"]})
    assert "dataset_rows" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("line", [b"", b"\n", b"not json\n"])
def test_no_spec(line):
    with pytest.raises(WorkerSpecError):
        read_spec(io.BytesIO(line))


ORPHAN = """
import sys, threading
from osmosis_ai.worker.spec import read_spec
from osmosis_ai.worker.lifeline import start_lifeline
print(read_spec(sys.stdin.buffer).run_id, flush=True)
start_lifeline()
if sys.argv[1] == "wait":
    threading.Event().wait()
"""


def worker(mode):
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdin.write(json.dumps(EVAL).encode() + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"r1\n"
    return process


def test_a_worker_whose_parent_is_gone_exits_at_once():
    with worker("wait") as process:
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(10) == 70


def test_a_worker_may_end_while_its_lifeline_is_open():
    with worker("end") as process:
        assert process.wait(10) == 0
