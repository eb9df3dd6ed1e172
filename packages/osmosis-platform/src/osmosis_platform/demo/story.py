"""The steps of the demo, in the order in which a customer takes them."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osmosis_platform.demo.console import Narrator
from osmosis_platform.demo.customer import CommandFailed, Customer
from osmosis_platform.demo.figures import Figures, Score
from osmosis_platform.demo.host import Host

HELD_OUT = "multiply-heldout"
ATTEMPTS_PER_ROW = 2
BASE_MODEL = "osmosis/tiny-multiply"


def tell(
    host: Host, customer: Customer, narrator: Narrator, *, seed: int, rollout: str, steps: int
) -> Figures:
    """Take every step and return what was measured."""
    seconds: dict[str, float] = {}
    phase = _Phases(seconds)
    with phase("workspace"):
        narrator.step("Clone the workspace repository and check it")
        customer.clone()
        customer.osmosis("doctor")
    with phase("datasets"):
        narrator.step("Upload the datasets: one to train on, one held out")
        for name in ("multiply", HELD_OUT):
            customer.osmosis("dataset", "upload", f"data/{name}.jsonl", "--yes")
        for name in ("multiply", HELD_OUT):
            customer.wait_for_dataset(name)
        customer.osmosis("dataset", "list")
    with phase("push"):
        narrator.step("Write the configs of this demo and push them")
        configs = write_configs(customer.workspace, rollout, seed, steps)
        customer.commit_and_push("Evaluate and train on multiply")
    with phase("base_evaluation"):
        narrator.step("Evaluate the base model on held-out rows")
        base = [_evaluate(customer, configs[f"base-{decoding}"]) for decoding in ("sampled", "greedy")]
        customer.osmosis("eval", "info", base[0].run)
    with phase("training"):
        narrator.step("Train a LoRA adapter with reinforcement learning")
        training_run = customer.submit("train", configs["train"])
        training = customer.wait_for_run("train", training_run)
        customer.osmosis("train", "info", training_run)
    with phase("deploy"):
        narrator.step("Deploy the last checkpoint")
        model = _last_checkpoint(customer, training_run)
        customer.osmosis("model", "list")
        customer.osmosis("model", "deploy", model)
    with phase("chat"):
        narrator.step("Ask the deployed adapter, with the openai client and an API key")
        answer = ask(host.url, customer.account.api_key, f"{BASE_MODEL}:{model}")
        narrator.say(answer)
    with phase("trained_evaluation"):
        narrator.step("Evaluate the trained adapter on the same held-out rows")
        set_model(customer.workspace, configs, f"{BASE_MODEL}:{model}")
        customer.commit_and_push("Evaluate the trained adapter")
        trained = [_evaluate(customer, configs[f"trained-{decoding}"]) for decoding in ("sampled", "greedy")]
    (host.folder / "sign-in.txt").touch(mode=0o600)
    (host.folder / "sign-in.txt").write_text(f"{customer.account.email}\n{customer.account.password}\n")
    return Figures(
        seed=seed,
        rollout=rollout,
        base_sampled=base[0],
        base_greedy=base[1],
        trained_sampled=trained[0],
        trained_greedy=trained[1],
        reward_curve=_reward_curve(training),
        training_run=training_run,
        model=model,
        answer=answer,
        pages=_pages(host, training, base[0], trained[0]),
        seconds=seconds,
    )


class _Phases:
    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - began


def write_configs(workspace: Path, rollout: str, seed: int, steps: int) -> dict[str, str]:
    """Write the run configs; returns their paths relative to the workspace by name."""
    paths = {}
    for policy in ("base", "trained"):
        for decoding, temperature in (("sampled", 1.0), ("greedy", 0.0)):
            name = f"{policy}-{decoding}"
            paths[name] = f"configs/eval/demo-{name}.toml"
            attempts = ATTEMPTS_PER_ROW if decoding == "sampled" else 1
            (workspace / paths[name]).write_text(
                f'[experiment]\nrollout = "{rollout}"\nentrypoint = "main.py"\nmodel_path = "{BASE_MODEL}"\n'
                f'dataset = "{HELD_OUT}"\n\n[evaluation]\nlimit = 64\nn = {attempts}\nbatch_size = 64\n\n'
                f"[advanced]\nseed = {seed}\n\n[advanced.policy]\ntemperature = {temperature}\n\n[secrets]\nrequired = []\n"
            )
    paths["train"] = "configs/training/demo.toml"
    preset = (workspace / f"configs/training/{rollout}.toml").read_text()
    advanced = tomllib.loads(preset)["advanced"]
    lines = preset.split("[advanced]")[0]
    options = {**advanced, "seed": seed, "max_steps": steps}
    body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    (workspace / paths["train"]).write_text(f"{lines}[advanced]\n{body}")
    return paths


def set_model(workspace: Path, configs: dict[str, str], model: str) -> None:
    """Point the configs of the second evaluation at the trained adapter."""
    for decoding in ("sampled", "greedy"):
        path = workspace / configs[f"trained-{decoding}"]
        path.write_text(path.read_text().replace(f'"{BASE_MODEL}"', f'"{model}"'))


def _evaluate(customer: Customer, config: str) -> Score:
    name = customer.submit("eval", config)
    data = customer.wait_for_run("eval", name)
    results = data["results"]
    confidence = results.get("confidence") or {}
    return Score(
        run=name,
        reward=float(results["score"]),
        pass_rate=float(results["pass_rate"]),
        attempts=int(results["total_runs"]),
        reward_interval=_interval(confidence.get("score")),
        pass_interval=_interval(confidence.get("pass_rate")),
    )


def _interval(found: dict[str, Any] | None) -> tuple[float, float] | None:
    return (float(found["low"]), float(found["high"])) if found else None


def _last_checkpoint(customer: Customer, training_run: str) -> str:
    listed = customer.osmosis_json("model", "list", "--type", "lora", "--all")["items"]
    mine = [m for m in listed if m["training_run_name"] == training_run]
    if not mine:
        raise CommandFailed(f"training run {training_run} left no LoRA model")
    return str(max(mine, key=lambda m: m["checkpoint_step"])["model_name"])


def _reward_curve(training: dict[str, Any]) -> list[float]:
    metrics = training["metrics"]["metrics"]
    return [float(p["value"]) for m in metrics if m["key"] == "training_reward" for p in m["data"]]


def _pages(host: Host, training: dict[str, Any], base: Score, trained: Score) -> dict[str, str]:
    return {
        "workspace": f"{host.url}/demo",
        "training run": training["platform_url"],
        "base evaluation": f"{host.url}/demo/evaluation/{base.run}",
        "trained evaluation": f"{host.url}/demo/evaluation/{trained.run}",
        "models": f"{host.url}/demo/models",
    }


def ask(url: str, api_key: str, model: str) -> str:
    """A chat of two turns with a real tool, through the official client; returns the final answer."""
    from openai import OpenAI
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

    client = OpenAI(base_url=f"{url}/v1", api_key=api_key)
    parameters: dict[str, object] = {
        "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
        "required": ["a", "b"],
        "title": "multiply_args",
        "type": "object",
        "additionalProperties": False,
    }
    tools: list[ChatCompletionToolParam] = [
        {
            "type": "function",
            "function": {
                "name": "multiply",
                "description": "Multiply two integers.",
                "parameters": parameters,
                "strict": True,
            },
        }
    ]
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Use the multiply tool when arithmetic is required."},
        {"role": "user", "content": "What is 23 times 47?"},
    ]
    for _ in range(4):
        choice = client.chat.completions.create(
            model=model, messages=messages, tools=tools, temperature=0, max_tokens=64
        ).choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))  # type: ignore[arg-type]
        if not choice.message.tool_calls:
            return choice.message.content or ""
        for call in choice.message.tool_calls:
            assert call.type == "function"
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": _multiply(call.function.arguments)}
            )
    return "(no final answer after four turns)"


def _multiply(arguments: str) -> str:
    try:
        values = json.loads(arguments)
        return str(int(values["a"]) * int(values["b"]))
    except (ValueError, KeyError, TypeError) as error:
        return f"error: {error}"
