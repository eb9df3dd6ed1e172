"""The real training worker as a process, with a real rollout server, a tiny real model and a platform that records."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from osmosis_ai.worker.running import report
from osmosis_ai.worker.spec import TrainSpec
from osmosis_trainer.tiny.tokenizer import TOOL_MARKS, chat_template
from osmosis_trainer.train import train
from osmosis_trainer.worker import work

ROLLOUT_APP = Path(__file__).with_name("rollout_app.py")
DEADLINE_S = 600.0


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 with two layers and random weights over a byte tokenizer, whose output head is sharpened."""
    folder = tmp_path_factory.mktemp("base-model")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["abcdefghijklmnopqrstuvwxyzDM,.:0123456789 "], trainer)
    bpe.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in TOOL_MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = chat_template()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        model.lm_head.weight *= 5.0
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[..., Path]:
    """Writes `rows.parquet`; `metadata` gives the metadata of chosen rows."""

    def write(rows: int = 20, metadata: dict[int, dict[str, Any]] | None = None) -> Path:
        given = metadata or {}
        content = [
            {
                "row_index": index,
                "system_prompt": None,
                "user_prompt": f"{index}:",
                "ground_truth": "digits",
                "metadata": json.dumps(given[index]) if index in given else None,
            }
            for index in range(rows)
        ]
        text = [(name, pa.string()) for name in ("system_prompt", "user_prompt", "ground_truth", "metadata")]
        path = tmp_path / "rows.parquet"
        pq.write_table(
            pa.Table.from_pylist(content, schema=pa.schema([("row_index", pa.int64()), *text])), path
        )
        return path

    return write


@dataclass
class Platform:
    """The run API, recording. `stop_when` decides after each batch of events whether a stop is asked for."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    stop_when: Callable[[Platform], bool] = lambda platform: False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/api/runs/{run_id}/events")
        async def events(run_id: str, request: Request) -> dict[str, Any]:
            if request.headers["Authorization"] != "Bearer token" or run_id != "run-1":
                raise HTTPException(401)
            new = (await request.json())["events"]
            async with self.changed:
                self.events += new
                self.changed.notify_all()
            return {"accepted": len(new), "stop_requested": self.stop_when(self)}

        @app.put("/api/runs/{run_id}/blobs/{sha256}", status_code=201)
        async def blob(run_id: str, sha256: str, request: Request) -> dict[str, Any]:
            content = await request.body()
            if hashlib.sha256(content).hexdigest() != sha256:
                raise HTTPException(422)
            self.blobs[sha256] = content
            return {}

        return app

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def log(self) -> list[str]:
        return [event["message"] for event in self.of("log")]

    def values(self, key: str) -> dict[int, float]:
        """A metric by step."""
        return {event["step"]: event["values"][key] for event in self.of("metrics") if key in event["values"]}

    async def until(self, condition: Callable[[Platform], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(lambda: condition(self))


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """The app on a loopback port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none", lifespan="off"))
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(DEADLINE_S):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await task


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    recorded = Platform()
    async with serving(recorded.app()) as url:
        recorded.url = url
        yield recorded


@dataclass
class RolloutServer:
    url: str
    starts: Path
    artifacts: Path

    def started(self) -> list[str]:
        """Ids of the rollouts it has started, in order."""
        return self.starts.read_text().splitlines() if self.starts.exists() else []


@pytest.fixture(scope="session")
def rollout_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RolloutServer]:
    """The rollout app in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("rollout-server")
    names = {
        "_OSMOSIS_ROLLOUT_PORT": str(port),
        "_OSMOSIS_ROLLOUT_INSTANCE_ID": "instance-1",
        "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(folder / "artifacts"),
        "ROLLOUT_STARTS": str(folder / "starts.txt"),
    }
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROLLOUT_APP)], env=os.environ | names, stdout=log, stderr=log
        )
    yield RolloutServer(f"http://127.0.0.1:{port}", folder / "starts.txt", folder / "artifacts")
    process.kill()
    process.wait()


@dataclass
class Run:
    """One run folder, and workers on it: in this process, or in processes of their own that can be killed."""

    spec: dict[str, Any]
    running: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def work(self) -> int:
        """The worker in this process; cancelling ends it wherever it is."""
        async with asyncio.timeout(DEADLINE_S):
            return await report(TrainSpec.model_validate(self.spec), partial(work, train))

    async def start(self) -> asyncio.subprocess.Process:
        """The worker as the platform starts it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "osmosis_trainer", "train", stdin=asyncio.subprocess.PIPE
        )
        self.running.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(self.spec).encode() + b"\n")
        await process.stdin.drain()
        return process

    @property
    def folder(self) -> Path:
        return Path(self.spec["work_dir"])

    async def journaled(self, count: int) -> None:
        """Wait until the journals hold `count` attempts."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.attempts()) < count:  # noqa: ASYNC110 - files have no event to wait for
                await asyncio.sleep(0.005)

    def attempts(self) -> dict[tuple[Any, ...], str]:
        """Rollout ids of the attempts in the journals, by key."""
        found: dict[tuple[Any, ...], str] = {}
        for path in self.folder.glob("journal/*.jsonl"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                record = json.loads(line)
                names = ("phase", "step", "slot", "row_index", "sample_index", "attempt")
                key = tuple(record[name] for name in names)
                assert key not in found
                found[key] = record["trace"]["rollout_id"]
        return found


@pytest.fixture
async def make_run(
    tmp_path: Path,
    base_model: Path,
    dataset: Callable[..., Path],
    platform: Platform,
    rollout_server: RolloutServer,
) -> AsyncIterator[Callable[..., Run]]:
    """Makes runs of three steps with three groups of four samples; `advanced=` and so on change settings."""
    made: list[Run] = []

    def make(name: str = "work", metadata: dict[int, dict[str, Any]] | None = None, **changes: Any) -> Run:
        config: dict[str, Any] = {
            "training": {
                "rollout_batch_size": 3,
                "n_samples_per_prompt": 4,
                "lr": 2e-2,
                "max_prompt_length": 64,
                "max_response_length": 64,
                "agent_workflow_timeout_s": 30,
                "grader_timeout_s": 10,
            },
            "sampling": {},
            "checkpoints": {"eval_interval": 2, "checkpoint_save_freq": 2},
            "advanced": {
                "max_steps": 3,
                "validation_rows": 4,
                "lora_rank": 4,
                "lora_alpha": 16,
                "torch_threads": 1,
                "mask_truncated": False,
                "refill_limit": 0,
            },
        }
        spec = {
            "kind": "train",
            "run_id": "run-1",
            "run_name": "digits-1",
            "api_url": platform.url,
            "run_token": "token",
            "work_dir": str(tmp_path / name),
            "rollout_url": rollout_server.url,
            "rollout_instance_id": "instance-1",
            "artifact_root": str(rollout_server.artifacts),
            "dataset_path": str(dataset(metadata=metadata)),
            "dataset_rows": 20,
            "config": {section: values | changes.get(section, {}) for section, values in config.items()},
            "base_model": {"name": "tiny/random", "path": str(base_model)},
        }
        made.append(Run(spec))
        return made[-1]

    yield make
    for process in (process for run in made for process in run.running):
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
