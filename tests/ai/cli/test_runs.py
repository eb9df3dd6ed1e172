"""Listing, showing and stopping runs."""

import json

import pytest

TRAIN = {
    "id": "tr-000001",
    "name": "brave-otter",
    "status": "running",
    "created_at": "2026-11-01T00:00:00Z",
    "started_at": "2026-11-01T00:01:00Z",
    "completed_at": None,
    "creator_name": "Ada",
    "creator_email": "a@b.c",
    "platform_url": "http://h/acme/training/tr-000001",
    "current_step": 12,
    "total_steps": 10,
    "reward": 0.5,
}
TRAIN_KEYS = set(TRAIN) | {
    "model_id",
    "model_name",
    "dataset_id",
    "dataset_name",
    "rollout_id",
    "rollout_name",
}
TRAIN_ITEM = TRAIN | {
    "model": {"id": "m-1", "model_name": "Qwen/Qwen3"},
    "dataset": {"id": "ds-1", "file_name": "train"},
    "rollout": {"id": "ro-1", "name": "mul"},
}
TRAIN_DETAIL = {
    "training_run": TRAIN
    | {
        "status": "finished",
        "completed_at": "2026-11-01T00:03:05Z",
        "examples_processed_count": 6400,
        "notes": None,
    },
    "model": {"id": "m-1", "name": "Qwen/Qwen3"},
    "dataset": {"id": "ds-1", "name": "train"},
    "rollout": {"id": "ro-1", "name": "mul"},
    "config": {"model_path": "Qwen/Qwen3", "training": {"lr": 4e-05, "x": None, "y": False}},
    "entrypoint": "main.py",
    "branch": "main",
    "commit_sha": "0123456789abcdef",
    "env_config": {"LOG_LEVEL": "INFO"},
    "resolved_secret_scopes": {"OPENAI_API_KEY": "user_override"},
}
TRAIN_METRICS = {
    "training_run_id": "tr-000001",
    "status": "finished",
    "overview": {
        "duration_ms": 125000,
        "examples_processed_count": 6400,
        "latest_step": 10,
        "total_steps": 10,
        "metric_summaries": [
            {
                "key": "rollout/raw_reward",
                "title": "Training Reward",
                "initial": 0.2,
                "latest": 0.6,
                "delta": None,
            }
        ],
    },
    "metrics": [
        {
            "metric_key": "rollout/raw_reward",
            "title": "Training Reward",
            "data_points": [{"step": 1, "value": 0.2, "timestamp": 1793491200000}],
        },
        {"metric_key": "other", "title": "Other", "data_points": []},
    ],
}
CHECKPOINT = {
    "id": "c1",
    "checkpoint_name": "brave-otter-10",
    "checkpoint_step": 10,
    "status": "uploaded",
    "created_at": "2026-11-01T00:03:00Z",
}
EVAL = {
    "id": "ev-000001",
    "name": "Calm-Heron",
    "status": "finished",
    "created_at": "2026-11-01T00:00:00Z",
    "started_at": "2026-11-01T00:00:00Z",
    "completed_at": "2026-11-01T03:04:00Z",
    "creator_name": None,
    "creator_email": "a@b.c",
    "platform_url": None,
}
RESULTS = {
    "total_runs": 5,
    "sampled_rows": 4,
    "score": 0.613,
    "pass_rate": 0.65,
    "pass_threshold": 0.5,
    "graded": 39,
    "passed": 26,
    "failed": 1,
    "skipped": 0,
    "total_tokens": 120000,
    "total_dataset_rows": 100,
    "resumed_count": 0,
    "reward_stats": {
        "mean": 0.6,
        "median": 0.62,
        "std": 0.2,
        "min": 0.0,
        "max": 1.0,
        "pass_at_k": {"1": 0.65, "10": 0.8, "2": 0.74},
    },
}
EVAL_DETAIL = {
    "eval_run": EVAL,
    "config": {"model_path": "openai/gpt-5-mini", "n": 2, "pass_threshold": 0.5},
    "dataset": {"id": "ds-1", "name": "train"},
    "rollout": {"id": "ro-1", "name": "mul"},
    "results": RESULTS,
    "entrypoint": "main.py",
    "branch": None,
    "commit_sha": "0123456789abcdef",
    "env_config": {},
    "resolved_secret_scopes": {"OPENAI_API_KEY": "workspace"},
    "dataset_df_stats": None,
}
EVAL_METRICS = {
    "eval_run_id": "ev-000001",
    "status": "finished",
    "overview": {"duration_ms": 1, "total_samples": 8, "pass_rate": 0.65, "skipped": None},
    "reward_stats": {"mean": 0.6},
    "pass_at_k": [{"k": 1, "value": 0.65}],
}


def test_train_list(osmosis, workspace, platform, context):
    platform.page(
        "/training-runs",
        "training_runs",
        [TRAIN_ITEM, {"id": "tr-2", "name": "n", "status": "queued", "reward": "x"}],
    )
    document = osmosis("train", "list", "--json").json
    first, second = document["items"]
    assert set(first) == TRAIN_KEYS | {"summary"}
    assert (first["model_name"], first["dataset_name"], first["rollout_name"]) == (
        "Qwen/Qwen3",
        "train",
        "mul",
    )
    assert first["summary"] == {"reward": 0.5, "progress": {"completed": 10, "total": 10, "unit": "steps"}}
    assert second["summary"] == {}
    assert not {"reward", "current_step", "platform_url"} & set(second)
    lines = osmosis("train", "list", "--plain").out.splitlines()
    assert lines[0] == "brave-otter\t[running]\tQwen/Qwen3\tmul\t0.50\t2026-11-01 12:00 AM UTC\tAda"
    assert lines[1].split("\t") == ["n", "[queued]", "–", "–", "–", "–", "–"]


def test_train_info(osmosis, workspace, platform, context):
    platform.on("GET", "/training-runs/brave-otter", TRAIN_DETAIL)
    platform.on(
        "GET",
        "/training-runs/brave-otter/checkpoints",
        {"training_run_id": "tr-000001", "checkpoints": [CHECKPOINT]},
    )
    platform.on("GET", "/training-runs/tr-000001/metrics", TRAIN_METRICS)
    data = osmosis("train", "info", "brave-otter", "--json").json["data"]
    assert set(data) == {
        "training_run",
        "summary",
        "platform_url",
        "checkpoints",
        "in_progress",
        "metrics_available",
        "metrics_error",
        "metrics",
        "output_path",
        "save_warning",
        *context,
    }
    assert set(data["training_run"]) == TRAIN_KEYS | {"examples_processed_count", "notes"}
    assert data["checkpoints"] == [CHECKPOINT]
    assert (data["in_progress"], data["metrics_available"], data["output_path"]) == (False, True, None)
    assert data["metrics"]["training_run"]["rows_processed"] == 6400
    assert data["metrics"]["summary"] == {"training_reward": {"initial": 0.2, "latest": 0.6}}
    assert data["metrics"]["metrics"][0] == {
        "key": "training_reward",
        "title": "Training Reward",
        "data": [{"step": 1, "value": 0.2, "timestamp": "2026-11-01T00:00:00+00:00"}],
    }
    assert data["metrics"]["metrics"][1]["key"] == "other"
    text = osmosis("train", "info", "brave-otter", "--plain").out
    assert "Status: Finished\nProgress: 10 / 10 steps\n" in text
    assert "Duration: 2m 5s\n" in text
    assert "Examples Processed: 6,400\n" in text
    assert "Config: training.lr=4e-05, training.y=false\n" in text
    assert "Commit: 0123456\n" in text
    assert "Secrets: OPENAI_API_KEY (personal, overrides workspace)\n" in text
    assert "Checkpoint: brave-otter-10 step 10 [uploaded]" in text
    assert "Deploy with: osmosis model deploy <lora-model-name>" in text
    assert "%" not in text
    shown = osmosis("train", "info", "brave-otter").out
    assert shown.count("osmosis model deploy") == 1
    assert "(the last one: brave-otter-10)" in shown


def test_train_info_writes_metrics_for_people_and_on_request(osmosis, workspace, platform):
    platform.on("GET", "/training-runs/brave-otter", TRAIN_DETAIL)
    platform.on("GET", "/training-runs/tr-000001/metrics", TRAIN_METRICS)
    assert osmosis("train", "info", "brave-otter").code == 0
    path = workspace / ".osmosis/metrics/brave-otter_tr-00000.json"
    text = path.read_text()
    assert text.endswith("}\n")
    assert json.loads(text)["training_run"]["id"] == "tr-000001"
    data = osmosis("train", "info", "brave-otter", "-o", "out/m.txt", "--json").json["data"]
    assert data["output_path"] == str(workspace / "out/m.json")
    (workspace / "blocked").write_text("")
    data = osmosis("train", "info", "brave-otter", "-o", "blocked/m.json", "--json").json["data"]
    assert (data["output_path"], data["save_warning"] is not None) == (None, True)


@pytest.mark.parametrize(
    ("status", "metrics", "fragment"),
    [
        ("pending", None, "not yet available for pending or queued"),
        ("running", ({"error": "none yet"}, 409), "none yet"),
        ("running", ({"status": "x"}, 200), "malformed"),
    ],
)
def test_train_info_without_metrics(osmosis, workspace, platform, status, metrics, fragment):
    platform.on("GET", "/training-runs/x", {**TRAIN_DETAIL, "training_run": TRAIN | {"status": status}})
    if metrics:
        platform.on("GET", "/training-runs/tr-000001/metrics", metrics[0], status=metrics[1])
    ran = osmosis("train", "info", "x", "--json")
    assert ran.code == 0
    data = ran.json["data"]
    assert fragment in data["metrics_error"]
    assert (data["metrics"], data["metrics_available"], data["in_progress"]) == (None, False, True)
    if status == "pending":
        assert platform.calls() == ["GET /training-runs/x"]
        assert "Progress: Waiting to start..." in osmosis("train", "info", "x", "--plain").out


def test_eval_list(osmosis, workspace, platform):
    item = EVAL | {
        "model": {"name": "m"},
        "dataset": {"name": "d"},
        "rollout": {"name": "r"},
        "results": RESULTS,
        "config": {"n": 2},
    }
    platform.page("/eval-runs", "eval_runs", [item, EVAL])
    first, second = osmosis("eval", "list", "--json").json["items"]
    assert (first["model"], first["dataset"], first["rollout"]) == ("m", "d", "r")
    assert first["summary"] == {
        "avg_reward": 0.613,
        "pass_rate": 0.65,
        "graded": 39,
        "passed": 26,
        "failed": 1,
        "skipped": 0,
        "progress": {"completed": 5, "total": 8, "unit": "samples"},
    }
    assert set(first) - set(second) == {"results", "config"}
    assert osmosis("eval", "list", "--plain").out.splitlines()[0].split("\t") == [
        "Calm-Heron",
        "[finished]",
        "r",
        "0.61",
        "2026-11-01 12:00 AM UTC",
        "–",
    ]


def test_eval_info(osmosis, workspace, platform, context):
    platform.on("GET", "/eval-runs/Calm-Heron", EVAL_DETAIL)
    platform.on("GET", "/eval-runs/ev-000001/metrics", EVAL_METRICS)
    data = osmosis("eval", "info", "Calm-Heron", "--json").json["data"]
    assert set(data) == set(context) | {
        "eval_run",
        "summary",
        "config",
        "results",
        "model",
        "dataset",
        "rollout",
        "entrypoint",
        "commit_sha",
        "branch",
        "env_config",
        "resolved_secret_scopes",
        "dataset_df_stats",
        "metrics",
        "metrics_available",
        "metrics_error",
        "output_path",
        "save_warning",
    }
    assert data["model"] == "openai/gpt-5-mini"
    assert data["summary"]["dataset_rows"] == 100
    assert data["summary"]["progress"] == {"completed": 5, "total": 8, "unit": "samples"}
    assert data["metrics"]["summary"] == {
        "total_samples": 8,
        "pass_rate": 0.65,
        "reward_stats": {"mean": 0.6},
        "pass_at_k": [{"k": 1, "value": 0.65}],
    }
    text = osmosis("eval", "info", "Calm-Heron", "--plain").out
    for line in (
        "Status: finished",
        "Progress: 5 / 8 samples",
        "Duration: 3h 4m",
        "Pass Rate: 65.0%",
        "Tokens Used: 120,000",
        "39 graded, 26 passed, 1 failed, 0 skipped",
        "Pass Threshold: 0.5000",
        "Reward Stats: mean 0.6000, std 0.2000, min 0.0000, median 0.6200, max 1.0000",
        "Pass@k: 1: 65.0%, 2: 74.0%, 10: 80.0%",
        "Secrets: OPENAI_API_KEY (workspace)",
    ):
        assert f"{line}\n" in text, line


def test_a_run_without_times_has_the_duration_of_its_metrics(osmosis, workspace, platform):
    run = {"id": "tr-000001", "name": "brave-otter", "status": "finished"}
    platform.on("GET", "/training-runs/brave-otter", {"training_run": run})
    platform.on("GET", "/training-runs/tr-000001/metrics", TRAIN_METRICS)
    text = osmosis("train", "info", "brave-otter", "--plain").out
    assert "Duration: 2m 5s\nExamples Processed: 6,400\n" in text


def offer(platform, files, manifest="/eval-runs/ev-000001/samples/manifest", **contents):
    platform.on("GET", manifest, {"files": files, "totals": {"files": len(files)}})
    urls = [
        {"path": file["path"], "url": f"{platform.url}/blob/{number}"} for number, file in enumerate(files)
    ]
    platform.on("POST", manifest.replace("manifest", "download-urls"), {"items": urls})


def test_eval_info_saves_the_platforms_metrics_file(osmosis, workspace, platform):
    platform.on("GET", "/eval-runs/Calm-Heron", EVAL_DETAIL)
    platform.on("GET", "/eval-runs/ev-000001/metrics", EVAL_METRICS)
    offer(platform, [{"path": "metrics.json", "size": 4}])
    platform.on("GET", "/blob/0", content=b"{ }\n")
    assert osmosis("eval", "info", "Calm-Heron").code == 0
    assert (workspace / ".osmosis/evals/Calm-Heron--ev-000001/metrics.json").read_bytes() == b"{ }\n"
    data = osmosis("eval", "info", "Calm-Heron", "-o", "out", "--json").json["data"]
    assert data["output_path"] == str(workspace / "out/metrics.json")
    platform.routes[("GET", "/blob/0")] = []
    data = osmosis("eval", "info", "Calm-Heron", "-o", "out2", "--json").json["data"]
    assert "could not be saved" in data["save_warning"]


@pytest.mark.parametrize(
    ("noun", "path", "subject", "prompt"),
    [
        ("train", "training-runs", "Training run", "Stop this training run?"),
        ("eval", "eval-runs", "Evaluation run", "Stop this evaluation run?"),
    ],
)
def test_stop(osmosis, workspace, platform, context, noun, path, subject, prompt):
    ran = osmosis(noun, "stop", "quiet-heron", "--json")
    assert ran.error["code"] == "INTERACTIVE_REQUIRED"
    assert ran.error["details"] == {"prompt": prompt, "summary": {"Name": "quiet-heron"}}
    platform.on("POST", f"/{path}/quiet-heron/stop", {"id": "1", "status": "stopping"})
    document = osmosis(noun, "stop", "quiet-heron", "--yes", "--json").json
    assert document == {
        "schema_version": 1,
        "status": "success",
        "operation": f"{noun}.stop",
        "resource": {"name": "quiet-heron", **context},
        "message": f'{subject} "quiet-heron" stopped.',
    }


def test_rollout_list(osmosis, workspace, platform):
    rollout = {
        "id": "r1",
        "name": "mul",
        "repo_full_name": "team/space",
        "last_synced_commit_sha": "0123456789",
        "created_at": "2026-11-01T00:00:00Z",
    }
    platform.page("/rollouts", "rollouts", [rollout, rollout | {"is_active": False, "created_at": None}])
    items = osmosis("rollout", "list", "--branch", "b", "--json").json["items"]
    assert set(items[0]) == {
        "id",
        "name",
        "is_active",
        "repo_full_name",
        "last_synced_commit_sha",
        "created_at",
    }
    assert platform.requests[0].query == {"branch": "b", "limit": "50", "offset": "0"}
    assert (
        osmosis("rollout", "list", "--plain").out == "mul\tyes\t01234567\t2026-11-01\nmul\tno\t01234567\t–\n"
    )
    assert "branch" not in platform.requests[1].query


def test_names_in_markup_are_printed_as_they_are(osmosis, workspace, platform):
    platform.page("/training-runs", "training_runs", [TRAIN_ITEM | {"name": "[red]x[/red]"}])
    assert "[red]x[/red]" in osmosis("train", "list").out
