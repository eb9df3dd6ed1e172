"""A training worker whose engine and agent follow a script: everything between them is the real loop.

As a program it is a nursery of workers: each line of its input is a run (`[work_dir, log_dir, config, kill]`), done by
a forked child; it answers with the child's wait status. `kill` is POINT:COUNT: the child kills itself with SIGKILL when
it passes that point for the COUNT-th time. Every started attempt is appended to `<log_dir>/starts.jsonl`, every event to
`<log_dir>/events.jsonl`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from osmosis_trainer.collect.attempt import Attempt, AttemptKey
from osmosis_trainer.collect.stop import StopSignal
from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.errors import NonFiniteLossError, StateError
from osmosis_trainer.gateway.trace import Branch, CallRecord, SessionTrace
from osmosis_trainer.parts import Parts
from osmosis_trainer.report import Report
from osmosis_trainer.sample_files import SampleFiles
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.train import train


class Points:
    """Named places the script passes; `kill` ends the process with SIGKILL at one of them."""

    def __init__(self, kill: str = "") -> None:
        name, _, count = kill.partition(":")
        self.kill = (name, int(count or 0))
        self.passed: Counter[str] = Counter()

    def reach(self, name: str) -> None:
        self.passed[name] += 1
        if (name, self.passed[name]) == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)


class ScriptedEngine:
    """Its adapter is a chain of hashes over everything it was trained with, so any difference in order, tokens,
    log-probabilities, advantages or rates changes it for good."""

    name = "scripted"
    capabilities = frozenset[str]()
    max_context = 1024

    def __init__(self, points: Points | None = None) -> None:
        self.points = points or Points()
        self.policy_version = 0
        self.adapter = "untrained"
        self.gradient = ""
        self.trained: list[list[TrainingRow]] = []
        self.rates: list[float] = []
        self.broken_losses = 0

    async def forward_backward(self, rows: list[TrainingRow], objective: Objective) -> dict[str, float]:
        self.points.reach("learn")
        if self.broken_losses:
            self.broken_losses -= 1
            raise NonFiniteLossError("the loss is nan")
        self.trained.append(list(rows))
        self.gradient = hashlib.sha256(repr((self.gradient, rows, objective)).encode()).hexdigest()
        return {"loss": -0.1, "entropy": 1.0}

    async def optim_step(self, *, lr: float, max_grad_norm: float) -> dict[str, float]:
        self.rates.append(lr)
        text = repr((self.adapter, self.gradient, lr, max_grad_norm))
        self.adapter, self.gradient = hashlib.sha256(text.encode()).hexdigest(), ""
        self.points.reach("learned")
        return {"grad_norm": 0.5}

    async def publish(self) -> int:
        self.policy_version += 1
        return self.policy_version

    async def save_state(self, folder: Path) -> None:
        folder.mkdir()
        self.points.reach("save")
        (folder / "engine.json").write_text(json.dumps([self.adapter, self.policy_version]))

    async def load_state(self, folder: Path) -> None:
        try:
            self.adapter, self.policy_version = json.loads((folder / "engine.json").read_text())
        except (OSError, ValueError) as error:
            raise StateError(f"{folder}: {error}") from error

    async def export_adapter(self, folder: Path) -> None:
        (folder / "adapter.txt").write_text(self.adapter)


class ScriptedAgent:
    """Attempts that depend on nothing but the seed and the policy. `fate` may turn one into a failure."""

    def __init__(self, engine: ScriptedEngine, starts: Path, seed: int, points: Points | None = None) -> None:
        self.engine, self.starts, self.seed = engine, starts, seed
        self.points = points or Points()
        self.open = self.most_open = 0
        self.hold: asyncio.Event | None = None

    def fate(self, key: AttemptKey, dice: random.Random) -> tuple[str, bool, float | None]:
        """Outcome, whether to try again, reward."""
        roll = dice.random()
        if roll < 0.05:
            return "invalid", True, None
        if roll < 0.08:
            return "failed", False, None
        return "graded", False, float(dice.random() < 0.5)

    async def __call__(self, key: AttemptKey, commit: Any) -> Attempt:
        rollout_id = uuid.uuid4().hex
        with self.starts.open("a") as file:
            file.write(json.dumps({"key": list(key), "rollout_id": rollout_id}) + "\n")
        self.points.reach("start")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.open -= 1
        attempt = self.finished(key, rollout_id)
        self.points.reach("finish")
        commit(attempt)
        self.points.reach("journaled")
        return attempt

    def finished(self, key: AttemptKey, rollout_id: str) -> Attempt:
        dice = random.Random(f"{key.seed(self.seed)} {self.engine.adapter}")
        outcome, retry, reward = self.fate(key, dice)
        tokens, logprobs = [dice.randrange(50) for _ in range(6)], [-dice.random() for _ in range(4)]
        call = CallRecord(
            index=0,
            parent=None,
            branch=Branch.ROOT,
            context_ids=tokens[:2],
            token_ids=tokens[2:],
            logprobs=logprobs,
            policy_version=self.engine.policy_version,
            seed=1,
            temperature=1.0,
            top_p=1.0,
            max_tokens=8,
            finish_reason="stop",
            truncated=False,
            outcome="text",
            messages=[{"role": "user", "content": f"row {key.row_index}"}],
            answer={"role": "assistant", "content": "..."},
            tool_set=0,
            cached_tokens=0,
            started_s=0.0,
            seconds=0.001,
        )
        return Attempt(
            **key._asdict(),
            outcome=outcome,
            retry=retry,
            reward=reward,
            error_type=None if outcome == "graded" else "agent_error",
            error_message=None if outcome == "graded" else "scripted",
            duration_ms=1.0,
            trace=SessionTrace(rollout_id, key.seed(self.seed), (call,), ([],)),
        )


class RecordedEvents:
    """Stands where the platform is: keeps events in a file."""

    def __init__(self, path: Path, points: Points | None = None) -> None:
        self.path, self.points = path, points or Points()
        self.blobs: dict[str, bytes] = {}

    def _keep(self, kind: str, **event: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"type": kind, **event}) + "\n")

    def log(self, message: str, *, level: str = "info", step: str = "init") -> None:
        self._keep("log", message=message, level=level, step=step)

    def progress(self, **fields: Any) -> None:
        self._keep("progress", **fields)

    def metrics(self, step: int, values: dict[str, float]) -> None:
        self._keep("metrics", step=step, values=values)

    def sample(self, **fields: Any) -> None:
        self._keep("sample", **fields)

    async def checkpoint(self, **fields: Any) -> None:
        self._keep("checkpoint", **fields)

    async def put_blob(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest

    async def flush(self) -> None:
        self.points.reach("flush")

    def of(self, kind: str) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [event for event in events if event["type"] == kind]


def make_parts(
    work_dir: Path, log_dir: Path, config: dict[str, Any], kill: str = "", rows: int = 23
) -> Parts:
    """A whole run over a dataset of `rows` rows."""
    points, settings = Points(kill), RunSettings.from_config(config)
    engine = ScriptedEngine(points)
    agent = ScriptedAgent(engine, log_dir / "starts.jsonl", settings.advanced.seed, points)
    report = Report(
        RecordedEvents(log_dir / "events.jsonl", points),
        lambda trace: {"rollout_id": trace.rollout_id},
        SampleFiles(log_dir / "artifacts", wait_s=0),
    )
    return Parts(settings, engine, rows, agent, report, StopSignal(), work_dir, concurrency=5)


def main() -> None:
    for line in sys.stdin:
        work_dir, log_dir, config, kill = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(600)
            asyncio.run(train(make_parts(Path(work_dir), Path(log_dir), config, kill)))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
