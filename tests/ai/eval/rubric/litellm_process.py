"""Runs jobs, one JSON line each, in a process that has LiteLLM and reaches loopback only.

LiteLLM is slow to import and leaves connections open, so one process of its own does all of it.
"""

import asyncio
import contextlib
import io
import json
import os
import socket
import sys
from typing import Any

_look_up = socket.getaddrinfo


def _only_loopback(host: Any, *more: Any, **options: Any) -> Any:
    if host not in ("127.0.0.1", "localhost"):
        sys.__stderr__.write(f"asked for {host}\n")
        raise OSError("only loopback can be reached here")
    return _look_up(host, *more, **options)


def ask(arguments: dict[str, Any]) -> dict[str, Any]:
    from osmosis_ai.eval.rubric import evaluate_rubric

    try:
        result = asyncio.run(evaluate_rubric(**arguments))
    except Exception as error:
        found = {name: getattr(error, name, None) for name in ("provider", "model")}
        return {"error": type(error).__name__, "text": str(error), **found}
    usage = result.usage
    told = usage and [usage.prompt_tokens, usage.completion_tokens, usage.cost_usd]
    return {"score": result.score, "explanation": result.explanation, "usage": told}


def command(arguments: list[str]) -> dict[str, Any]:
    from osmosis_ai.cli.main import main

    return {"status": main(arguments)}


def code(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, "example", "exec"), names)
    return {"value": names.get("value")}


def serve() -> None:
    socket.getaddrinfo = _only_loopback
    known = dict(os.environ)
    for line in sys.stdin:
        job = json.loads(line)
        os.environ.clear()
        os.environ.update(known, **job["env"])
        os.chdir(job["folder"])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            answer = {"ask": ask, "command": command, "code": code}[job["kind"]](job["what"])
        answer |= {"out": out.getvalue(), "err": err.getvalue()}
        sys.__stdout__.write(json.dumps(answer) + "\n")
        sys.__stdout__.flush()


if __name__ == "__main__":
    serve()
