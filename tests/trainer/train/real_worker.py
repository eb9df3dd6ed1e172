"""A training worker with the real engine, gateway and journal; only the agent is in this process and plays by itself.

As a program it is a nursery of workers: each line of its input is a run (`[model, work_dir, log_dir, config, kill]`), done by
a forked child; it answers with the child's wait status. `kill` N > 0: the child kills itself with SIGKILL at its N-th event:
a model call, or a file below `work_dir` that is about to be opened, renamed, made or removed. So kills fall into sampling,
into learning while the next rollouts run, and between any two writes of journal, state and checkpoint. The number of
events of a whole run is written to `<log_dir>/events`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from osmosis_ai.datasets import DatasetRow
from osmosis_ai.rollout.controller.result import RolloutResult
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_trainer.collect.rollouts import RolloutRunner
from osmosis_trainer.collect.stop import StopSignal
from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.gateway.policy_gateway import PolicyGateway
from osmosis_trainer.parts import Parts
from osmosis_trainer.report import Report
from osmosis_trainer.sample_files import SampleFiles
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.train import train

ROWS = 12
_FILE_EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"}


class Events:
    """Counts what happens; `kill` ends the process at one of them."""

    def __init__(self, work_dir: str, kill: int) -> None:
        self.work_dir, self.kill, self.count = work_dir, kill, 0

    def happen(self) -> None:
        self.count += 1
        if self.count == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILE_EVENTS and str(arguments[0]).startswith(self.work_dir):
            self.happen()


@dataclass
class Agent:
    """Two turns with the policy, after waits of random length; the reward is the share of vowels in the answers."""

    gateway: PolicyGateway
    events: Events

    async def run(self, request: RolloutRunRequest) -> RolloutResult:
        messages: list[dict[str, Any]] = list(request.messages)
        for turn in ("One.", "Two."):
            for _ in range(random.randrange(40)):
                await asyncio.sleep(0)
            self.events.happen()
            messages.append({"role": "user", "content": turn})
            body = {"messages": messages, "max_tokens": 8}
            answer = await self.gateway.complete(request.rollout_id, body)
            messages.append(answer["choices"][0]["message"])
        said = "".join(message["content"] or "" for message in messages if message["role"] == "assistant")
        reward = sum(letter in "aeiou" for letter in said) / max(len(said), 1)
        return RolloutResult(request.rollout_id, "success", reward, None, None, None, duration_ms=1.0)


class Silent:
    """Stands where the platform is and keeps metrics only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, *_: Any, **__: Any) -> None: ...

    def progress(self, **_: Any) -> None: ...

    def metrics(self, step: int, values: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([step, values]) + "\n")

    def sample(self, **_: Any) -> None: ...

    async def checkpoint(self, **_: Any) -> None: ...

    async def put_blob(self, _: bytes) -> str:
        return "0" * 64

    async def flush(self) -> None: ...


async def work(model: Path, work_dir: Path, log_dir: Path, config: dict[str, Any], events: Events) -> None:
    """One worker, to the end of the run."""
    settings = RunSettings.from_config(config)
    advanced = settings.advanced
    engine = LocalEngine.load(
        model,
        LocalSettings(
            lora=LoraSettings(rank=advanced.lora_rank, alpha=advanced.lora_alpha, seed=advanced.seed),
            slots=8,
            max_context=256,
            threads=1,
        ),
    )
    gateway = PolicyGateway(engine)
    rows = [
        DatasetRow(row_index=i, messages=[{"role": "user", "content": f"{i}:"}], label=None, metadata=None)
        for i in range(ROWS)
    ]
    runner = RolloutRunner(gateway, rows.__getitem__, settings)
    report = Report(
        Silent(log_dir / "metrics.jsonl"), gateway.view, SampleFiles(log_dir / "artifacts", wait_s=0)
    )
    agent = Agent(gateway, events)
    await train(
        Parts(
            settings, engine, ROWS, partial(runner.run, agent), report, StopSignal(), work_dir, concurrency=5
        )
    )
    await engine.close()


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        model, work_dir, log_dir, config, kill = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(900)
            events = Events(work_dir, kill)
            sys.addaudithook(events.audit)
            asyncio.run(work(Path(model), Path(work_dir), Path(log_dir), config, events))
            (Path(log_dir) / "events").write_text(str(events.count))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
