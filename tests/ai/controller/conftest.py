"""Small rollout servers of every protocol generation, a scripted policy, and controllers driving them, all over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Header, Response
from fastapi.responses import JSONResponse

from osmosis_ai.rollout.controller import RolloutController
from osmosis_ai.rollout.controller.chat import ChatError
from osmosis_ai.rollout.controller.lanes import make_http_client

Workflow = Callable[["Rollout"], Awaitable[dict[str, Any] | None]]


@dataclass
class Rollout:
    """One execution on a fake server."""

    body: dict[str, Any]
    http: httpx.AsyncClient
    chat_key: str | None
    acks: list[Any] = field(default_factory=list)

    async def chat(self, content: str, **extra: Any) -> httpx.Response:
        return await self.http.post(
            self.body["chat_completions_url"] + "/chat/completions",
            json={"model": "osmosis-rollout", "messages": [{"role": "user", "content": content}], **extra},
            headers={"Authorization": f"Bearer {self.chat_key}"},
        )

    async def post(self, channel: str, payload: dict[str, Any], key: str | None = None) -> httpx.Response:
        key = key or self.body["controller_api_key"]
        response = await self.http.post(
            self.body[f"{channel}_callback_url"], json=payload, headers={"Authorization": f"Bearer {key}"}
        )
        self.acks.append((channel, response.status_code, response.json()))
        return response


class FakeRolloutServer:
    """Speaks generation ``A``, ``B`` or ``C``. The workflow returns a sample with its reward, or raises."""

    def __init__(self, generation: str, workflow: Workflow) -> None:
        self.generation = generation
        self.workflow = workflow
        self.health: dict[str, Any] = {"status": "ok"}
        self.refusals: list[Response] = []
        self.bodies: list[dict[str, Any]] = []
        self.rollouts: dict[str, Rollout] = {}
        self.cancelled: list[str] = []
        self.results: dict[str, dict[str, Any]] = {}
        self.poll_trouble: list[int] = []
        self.done = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._http = make_http_client(httpx.Timeout(60))
        self.app = FastAPI()
        self.app.add_api_route("/rollout", self._accept, methods=["POST"])
        self.app.add_api_route("/health", lambda: self.health)
        self.app.add_api_route("/rollout/cancel", self._cancel, methods=["POST"])
        self.app.add_api_route("/rollout/{rollout_id}/result", self._result)

    async def settled(self) -> None:
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _accept(self, body: dict[str, Any]) -> Response:
        if self.refusals:
            return self.refusals.pop(0)
        self.bodies.append(body)
        old = self.generation == "A"
        rollout = Rollout(body, self._http, body["controller_api_key" if old else "llm_api_key"])
        self.rollouts[body["rollout_id"]] = rollout
        task = asyncio.create_task(self._execute(rollout))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.generation == "C":
            lease = {
                "polling_lease_token": "lease-1",
                "result_wait_timeout_sec": 1,
                "polling_lease_timeout_sec": 120,
            }
            return JSONResponse(
                {"rollout_id": body["rollout_id"], "status": "queued", **lease}, status_code=202
            )
        return JSONResponse({}, status_code=200 if old else 202)

    async def _execute(self, rollout: Rollout) -> None:
        try:
            sample = await self.workflow(rollout)
            completion: dict[str, Any] = {"status": "success"}
            grader: dict[str, Any] = {"status": "success", "sample": sample}
        except Exception as error:
            failure = {"status": "failure", "err_message": str(error), "err_category": "agent_error"}
            completion, grader = failure, {"status": "failure"}
            if self.generation == "C":
                grader = failure
        if self.generation == "C":
            async with self.done:
                self.results[rollout.body["rollout_id"]] = grader
                self.done.notify_all()
            return
        await rollout.post("completion", completion)
        await rollout.post("grader", grader)

    async def _result(self, rollout_id: str, x_osmosis_rollout_lease: str = Header()) -> Response:
        if self.poll_trouble:
            return JSONResponse({"detail": "bad gateway"}, status_code=self.poll_trouble.pop(0))
        if x_osmosis_rollout_lease != "lease-1":
            return JSONResponse({"detail": "wrong token"}, status_code=403)
        if rollout_id not in self.rollouts:
            return JSONResponse({"detail": "unknown"}, status_code=404)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1), self.done:
                await self.done.wait_for(lambda: rollout_id in self.results)
        result = self.results.get(rollout_id, {"status": "running"})
        return JSONResponse({"rollout_id": rollout_id, **result})

    async def _cancel(self, body: dict[str, Any]) -> dict[str, Any]:
        self.cancelled += body["ids"]
        return {"dispositions": dict.fromkeys(body["ids"], "cancelled_running")}


@dataclass
class EchoPolicy:
    """Answers with the last message; content ``fail:<status>`` raises, ``hang`` waits until it is cancelled."""

    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    message: dict[str, Any] | None = None

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((rollout_id, body))
        content = body["messages"][-1]["content"]
        if content.startswith("fail:"):
            raise ChatError(
                "refused by the script", status=int(content[5:]), infrastructure=content != "fail:400"
            )
        if content == "crash":
            raise ZeroDivisionError
        if content == "hang":
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(rollout_id)
                self.hung_up.set()
                raise
        message = self.message or {"role": "assistant", "content": f"echo {content}"}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "policy",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        return {"model_name": "policy", "samples": {}}

    def discard(self, rollout_id: str) -> None:
        self.discarded.append(rollout_id)


async def chat_then_reward(rollout: Rollout) -> dict[str, Any]:
    response = await rollout.chat("hello")
    response.raise_for_status()
    answer = response.json()["choices"][0]["message"]
    return {"messages": [answer], "label": rollout.body["label"], "reward": 0.5, "remove_sample": False}


@pytest.fixture
async def start_server(
    serve_app: Any,
) -> AsyncIterator[Callable[..., Awaitable[tuple[FakeRolloutServer, str]]]]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(generation: str = "B", workflow: Workflow = chat_then_reward, **health: Any):
            server = FakeRolloutServer(generation, workflow)
            server.health |= health
            url = await stack.enter_async_context(serve_app(server.app))
            stack.push_async_callback(server.close)
            return server, url

        yield start


@pytest.fixture
def policy() -> EchoPolicy:
    return EchoPolicy()


@pytest.fixture
async def start_controller(policy: EchoPolicy) -> AsyncIterator[Callable[..., Awaitable[RolloutController]]]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(url: str, **options: Any) -> RolloutController:
            options.setdefault("chat", policy)
            return await stack.enter_async_context(RolloutController(rollout_url=url, **options))

        yield start
