"""A worker with a script instead of a model: `python scripted_worker.py SCRIPT.json`, spec on stdin like any worker.

Script: `steps` (attempts or training steps to do, default 4), `wait_before` {step: file that must exist before it},
`kill_self_at` (step, only in lives whose number is at most `lives`), `exit` (status at the end), `fail` (reason), `say` (a line),
`leak` (text that gets into a trajectory, artifacts, an error and a log line of every attempt).
Each step is one line in `executed` before it counts as finished, so that a second execution would show.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import httpx

from osmosis_ai.worker.lifeline import start_lifeline
from osmosis_ai.worker.run_client import RunClient


async def main() -> int:
    spec = json.loads(sys.stdin.buffer.readline())
    start_lifeline()
    script = json.loads(Path(sys.argv[1]).read_text())
    work = Path(spec["work_dir"])
    life = int((work / "lives").read_text()) + 1 if (work / "lives").exists() else 1
    (work / "lives").write_text(str(life))
    (work / "pid").write_text(str(os.getpid()))
    (work / "spec").write_text(json.dumps(spec))
    print(f"worker life {life}", script.get("say", ""), flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{spec['rollout_url']}/health")).status_code == 200
    async with RunClient(api_url=spec["api_url"], run_id=spec["run_id"], token=spec["run_token"]) as client:
        done = await finished(client, spec, work)
        total = script.get("steps", 4)
        for step in range(total):
            if step in done:
                continue
            wanted = script.get("wait_before", {}).get(str(step))
            await gate_open(wanted, stop)
            if stop.is_set() or client.stop_requested.is_set():
                return 3
            with (work / "executed").open("a") as file:
                file.write(f"{step}\n")
            await report(client, spec, step, total, script.get("leak", ""))
            if script.get("kill_self_at") == step and life <= script.get("lives", 1):
                await client.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        if "fail" in script:
            await client.failed(script["fail"], "scripted")
            return 4
    return int(script.get("exit", 0))


async def gate_open(wanted: str | None, stop: asyncio.Event) -> None:
    while wanted and not Path(wanted).exists() and not stop.is_set():  # noqa: ASYNC110 another process makes the file
        await asyncio.sleep(0.02)


async def finished(client: RunClient, spec: dict, work: Path) -> set[int]:
    if spec["kind"] == "eval":
        return {attempt["row_index"] async for attempt in client.finished_attempts()}
    journal = work / "journal"
    return set(map(int, journal.read_text().split())) if journal.exists() else set()


async def report(client: RunClient, spec: dict, step: int, total: int, leak: str) -> None:
    if spec["kind"] == "eval":
        folder = Path(spec["artifact_root"]) / f"r{step}"
        folder.mkdir(exist_ok=True)
        document = {"step": step, "at": time.time(), "steps": [{"source": "agent", "message": leak}]}
        trajectory = await client.put_blob(json.dumps(document).encode())
        files = {f"out/a{leak}.txt": b"an artifact" + leak.encode()}
        if leak:
            files["out/b.bin"] = b"\0\1\2" + leak.encode() + b"\0"
        artifacts = [
            {"path": path, "size": len(content), "sha256": await client.put_blob(content)}
            for path, content in files.items()
        ]
        client.progress(sampled_rows=total, total_runs=total)
        if leak:
            client.log(f"the agent says {leak}", details={leak: [leak]})
        await client.attempt(
            row_index=step, run_index=0, rollout_id=f"r{step}", status="success", reward=step / 10, tokens=5, duration_ms=1.5,
            error_message=leak or None, trajectory_blob=trajectory, artifacts=artifacts,
        )  # fmt: skip
        return
    client.metrics(step, {"rollout/raw_reward": step / 10})
    client.progress(current_step=step + 1, total_steps=total)
    await client.flush()
    with (Path(spec["work_dir"]) / "journal").open("a") as file:
        file.write(f"{step}\n")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
