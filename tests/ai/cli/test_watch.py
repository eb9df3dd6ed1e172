"""`--watch`: a run is shown as it changes until it is over."""

import json
import os
import pty
import subprocess
import sys

import pytest

from osmosis_ai.cli import watch


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(watch, "INTERVAL_S", 0)


def train(status, step=None):
    run = {"id": "t-1", "name": "heron", "status": status, "current_step": step, "total_steps": 4}
    return {"training_run": {**run, "reward": 0.5}}


METRICS = {
    "training_run_id": "t-1",
    "status": "running",
    "overview": {"metric_summaries": []},
    "metrics": [
        {
            "metric_key": "rollout/raw_reward",
            "title": "Training Reward",
            "data_points": [{"step": n, "value": n / 4, "timestamp": 1000 * n} for n in range(5)],
        }
    ],
}


@pytest.fixture
def training(platform):
    """A training run that goes through these states, one a look."""

    def states(*answers):
        for status, body in answers:
            platform.on("GET", "/training-runs/heron", body, status=status)
        platform.on("GET", "/training-runs/t-1/metrics", METRICS)
        platform.on("GET", "/training-runs/heron/checkpoints", {"checkpoints": []})

    return states


def evaluation(status, runs):
    results = {"total_runs": runs, "sampled_rows": 4, "score": 0.25, "pass_rate": 0.5}
    return {"eval_run": {"id": "e-1", "name": "fox", "status": status}, "results": results}


def test_each_change_is_a_line_without_a_terminal(osmosis, workspace, training, at_once):
    training(
        (200, train("pending")),
        (200, train("running", 1)),
        (200, train("running", 1)),
        (200, train("running", 3)),
        (200, train("finished", 4)),
    )
    ran = osmosis("train", "info", "heron", "--watch", "--plain")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "Pending: not started, reward 0.50",
        "Running: 1 / 4 steps, reward 0.50",
        "Running: 3 / 4 steps, reward 0.50",
        "Finished: 4 / 4 steps, reward 0.50",
        "Fetching training run...",
    ]
    assert ran.out.startswith("Name: heron\nStatus: Finished\n")


def test_programs_get_one_object_when_it_is_over(osmosis, workspace, platform, at_once):
    for state in (evaluation("running", 1), evaluation("finished", 4)):
        platform.on("GET", "/eval-runs/fox", state)
    ran = osmosis("eval", "info", "fox", "--watch", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["data"]["eval_run"]["status"] == "finished"


def test_an_outage_is_waited_for(osmosis, workspace, training, at_once):
    training(
        (200, train("running", 1)),
        (503, {"error": "restarting"}),
        (502, None),
        (429, {"error": "slow down"}),
        (200, train("stopped", 2)),
    )
    ran = osmosis("train", "info", "heron", "-w", "--plain")
    assert ran.code == 0
    assert ran.err.splitlines()[1:3] == [
        "The platform does not answer; trying again.",
        "Stopped: 2 / 4 steps, reward 0.50",
    ]


@pytest.mark.parametrize(
    ("status", "code"), [(401, "AUTH_REQUIRED"), (404, "NOT_FOUND"), (403, "PLATFORM_ERROR")]
)
def test_a_refusal_ends_it(osmosis, workspace, training, at_once, status, code):
    training((200, train("running", 1)), (status, {"error": "no", "code": "TOKEN_REVOKED"}))
    ran = osmosis("train", "info", "heron", "--watch", "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", code)


def test_a_platform_that_stays_away_is_given_up(osmosis, workspace, training, at_once):
    training((200, train("running", 1)), (500, {"error": "broken"}))
    ran = osmosis("train", "info", "heron", "--watch", "--json")
    assert (ran.code, ran.error["message"]) == (1, "broken")


PROGRAM = """
import sys
from osmosis_ai.cli import watch
from osmosis_ai.cli.main import main
watch.INTERVAL_S = 0.05
sys.exit(main())
"""


@pytest.mark.parametrize("columns", [40, 120])
def test_a_terminal_shows_progress_and_curves(workspace, training, columns):
    training((200, train("running", 1)), (200, train("running", 3)), (200, train("finished", 4)))
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "train", "info", "heron", "--watch"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        drawn = b""
        try:
            while block := os.read(ours, 65536):
                drawn += block
        except OSError:  # the other end is closed
            pass
        out = process.stdout.read().decode()
        code = process.wait()
    os.close(ours)
    shown = drawn.decode()
    assert code == 0, shown
    assert "████░" in shown
    assert "1 / 4 steps" in shown.replace("\r\n", " ")
    assert "Training Reward" in shown
    assert "▁" in shown
    assert out.startswith("Training Run\n")
    assert "Finished" in out


def test_without_it_the_follow_up_is_named(osmosis, workspace, training):
    training((200, train("running", 1)))
    assert "osmosis train info heron --watch" in osmosis("train", "info", "heron").out
    assert "--watch" not in osmosis("train", "info", "heron", "--plain").out
    assert "--watch" not in json.dumps(osmosis("train", "info", "heron", "--json").json)


def test_steps_come_from_the_metrics_where_the_run_tells_none(osmosis, workspace, platform):
    platform.on("GET", "/training-runs/heron", {"training_run": {"id": "t-1", "status": "running"}})
    overview = {"latest_step": 3, "total_steps": 8, "metric_summaries": []}
    platform.on("GET", "/training-runs/t-1/metrics", {**METRICS, "overview": overview})
    assert "Progress: 3 / 8 rollout steps\n" in osmosis("train", "info", "heron", "--plain").out
