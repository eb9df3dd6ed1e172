"""Synthetic multiply chats in the shapes that agent frameworks send: what the tiny base model is warmed up on.

Half of the chats carry the exact tool schemas of `multiply(a: int, b: int)` as OpenAI Agents 0.24 and Strands Agents
1.62 put them on the wire, because an adapter trained on a base that never saw a framework's schema does not reach it;
the rest vary names, order, titles and descriptions so that the model reads the schema instead of reciting it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any, Literal

Mistake = Literal["good", "guess", "args", "json", "name", "final"]

QUESTIONS = (
    "What is {a} times {b}?",
    "Multiply {a} by {b}.",
    "Compute {a} * {b}.",
    "{a} x {b} = ?",
    "What is the product of {a} and {b}?",
    "Calculate {a} * {b}",
    "Please multiply {a} and {b}.",
)
INSTRUCTIONS = (
    "Use the multiply tool when arithmetic is required.",
    "You are a calculator. Use the tools.",
    "You are a helpful assistant.",
    "Use the multiply tool for every multiplication, then answer with the result.",
    "Always call the multiply tool, then state the final answer.",
    "You are a math assistant.",
    "You are a careful assistant. Use tools for arithmetic and answer with the number.",
)
DESCRIPTIONS = (
    "Multiply two integers.",
    "Multiply two integers.",
    "Multiply two integers",
    "Multiply two numbers.",
    "Multiply a by b.",
    "Multiply two integers and return the product.",
    "Returns the product of two numbers.",
)
ARGUMENT_NAMES = (("a", "b"), ("a", "b"), ("x", "y"), ("first", "second"), ("first_val", "second_val"))

# How mistakes divide. Guessing dominates, so that the base is poor but every mistake has been seen.
MISTAKES: dict[Mistake, float] = {"guess": 0.9, "args": 0.02, "json": 0.03, "name": 0.03, "final": 0.02}


@dataclass(frozen=True, slots=True)
class MultiplyTask:
    """One question with the messages and tools a framework would send, and the right answer."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    a: int
    b: int
    argument_names: tuple[str, str]

    @property
    def label(self) -> str:
        """The product, as text."""
        return str(self.a * self.b)


def openai_agents_tool(description: str, argument_docs: bool = False, strict: bool = True) -> dict[str, Any]:
    """The schema OpenAI Agents sends for `multiply(a: int, b: int)`."""

    def argument(name: str, doc: str) -> dict[str, Any]:
        value = {"title": name.upper(), "type": "integer"}
        return {"description": doc, **value} if argument_docs else value

    parameters: dict[str, Any] = {
        "properties": {"a": argument("a", "The first integer."), "b": argument("b", "The second integer.")},
        "required": ["a", "b"],
        "title": "multiply_args",
        "type": "object",
    }
    if strict:
        parameters["additionalProperties"] = False
    function: dict[str, Any] = {"name": "multiply", "description": description, "parameters": parameters}
    function["strict"] = strict
    return {"type": "function", "function": function}


def strands_tool(description: str, argument_docs: bool = False) -> dict[str, Any]:
    """The schema Strands Agents sends for `multiply(a: int, b: int)`."""
    docs = ("The first integer.", "The second integer.") if argument_docs else ("Parameter a", "Parameter b")
    parameters = {
        "properties": {
            "a": {"description": docs[0], "type": "integer"},
            "b": {"description": docs[1], "type": "integer"},
        },
        "required": ["a", "b"],
        "type": "object",
    }
    return {
        "type": "function",
        "function": {"name": "multiply", "description": description, "parameters": parameters},
    }


def varied_tool(rng: random.Random) -> tuple[dict[str, Any], tuple[str, str]]:
    """A multiply tool in a shape of no particular framework, and its argument names."""
    names = rng.choice(ARGUMENT_NAMES)
    kind = rng.choice(["integer", "integer", "number"])
    style = rng.choice(["bare", "title", "describe"])

    def argument(name: str) -> dict[str, Any]:
        if style == "title":
            return {"title": name.title(), "type": kind}
        if style == "describe":
            return {"description": rng.choice([f"Parameter {name}", name, "An integer"]), "type": kind}
        return {"type": kind}

    keys: dict[str, Any] = {
        "type": "object",
        "properties": {name: argument(name) for name in names},
        "required": list(names),
    }
    if rng.random() < 0.5:
        keys["additionalProperties"] = False
    if rng.random() < 0.3:
        keys["title"] = "multiply_args"
    order = list(keys)
    if rng.random() < 0.6:
        rng.shuffle(order)
    function: dict[str, Any] = {
        "name": "multiply",
        "description": rng.choice(DESCRIPTIONS),
        "parameters": {key: keys[key] for key in order},
    }
    if rng.random() < 0.4:
        function["strict"] = True
    return {"type": "function", "function": function}, names


def openai_agents_task(rng: random.Random, largest: int = 99) -> MultiplyTask:
    """The agent's instructions, if any, are a system message of their own; the row's system prompt follows."""
    systems = [rng.choice(INSTRUCTIONS) for _ in range(rng.choices([0, 1, 2], [0.1, 0.45, 0.45])[0])]
    tool = openai_agents_tool(
        rng.choice(DESCRIPTIONS), argument_docs=rng.random() < 0.25, strict=rng.random() < 0.85
    )
    return _task(rng, systems, tool, ("a", "b"), largest)


def strands_task(rng: random.Random, largest: int = 99) -> MultiplyTask:
    """At most one system message: the agent's prompt, the row's, or both joined."""
    systems = rng.choices(
        [[], [rng.choice(INSTRUCTIONS)], [rng.choice(INSTRUCTIONS) + "\n\n" + rng.choice(INSTRUCTIONS)]],
        [0.15, 0.65, 0.2],
    )[0]
    tool = strands_tool(rng.choice(DESCRIPTIONS), argument_docs=rng.random() < 0.25)
    return _task(rng, systems, tool, ("a", "b"), largest)


def varied_task(rng: random.Random, largest: int = 99) -> MultiplyTask:
    """A chat of no particular framework."""
    systems = [rng.choice(INSTRUCTIONS)] if rng.random() < 0.75 else []
    tool, names = varied_tool(rng)
    return _task(rng, systems, tool, names, largest)


def any_task(rng: random.Random) -> MultiplyTask:
    """The warm-up mixture: 35 % OpenAI Agents, 35 % Strands, 30 % varied; every sixth with factors up to 999."""
    largest = rng.choice([99, 99, 99, 99, 99, 999])
    make = rng.choices([openai_agents_task, strands_task, varied_task], [0.35, 0.35, 0.3])[0]
    return make(rng, largest)


def _task(
    rng: random.Random, systems: list[str], tool: dict[str, Any], names: tuple[str, str], largest: int
) -> MultiplyTask:
    a, b = rng.randint(1, largest), rng.randint(1, largest)
    messages = [{"role": "system", "content": text} for text in systems]
    messages.append({"role": "user", "content": rng.choice(QUESTIONS).format(a=a, b=b)})
    return MultiplyTask(messages, [tool], a, b, names)


def demonstrate(rng: random.Random, task: MultiplyTask, noise: float) -> list[dict[str, Any]]:
    """The turns after the question; with probability `noise` one of the `MISTAKES` is made."""
    mistake: Mistake = "good"
    if rng.random() < noise:
        mistake = rng.choices(list(MISTAKES), list(MISTAKES.values()))[0]
    if mistake == "guess":
        return [_assistant(f"The answer is {rng.randint(10, 9999)}.")]
    first, second = task.argument_names
    arguments = f'{{"{first}": {task.a}, "{second}": {task.b}}}'
    if mistake == "args":
        arguments = _change_digit(rng, arguments)
    name = "product" if mistake == "name" else "multiply"
    call = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
    if mistake == "json":
        return [_assistant(call.replace("}}</tool_call>", "}</tool_call>"))]
    if mistake == "name":
        return [_assistant(call)]
    left, right = (int(number) for number in re.findall(r": (\d+)", arguments))
    result = str(left * right)
    final = _change_digit(rng, result) if mistake == "final" else result
    return [
        _assistant(call),
        {"role": "tool", "content": result},
        _assistant(f"The answer is {final}."),
    ]


def _assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def _change_digit(rng: random.Random, text: str) -> str:
    place = rng.choice([i for i, char in enumerate(text) if char.isdigit()])
    digit = rng.choice([d for d in "0123456789" if d != text[place]])
    return text[:place] + digit + text[place + 1 :]
