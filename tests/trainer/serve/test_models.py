"""Base models and adapters over the real local engine: loading, telling apart, replacing, unloading."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from osmosis_trainer.chat import ChatRequestError
from osmosis_trainer.serve import ModelRegistry
from osmosis_trainer.serve.process import local_engines

QUESTION: list[Any] = [{"role": "user", "content": "6 times 7?"}]
HEADERS = {"authorization": "Bearer secret-key"}


def loaded(registry: ModelRegistry) -> dict[str, bool]:
    return {entry.id: entry.loaded for entry in registry.entries()}


async def greedy(client: openai.AsyncOpenAI, model: str) -> str:
    answer = await client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=12
    )
    return answer.choices[0].message.content or ""


async def test_base_and_adapters_answer_differently_and_side_by_side(
    real: ModelRegistry, listen: Any, model_folders: Path
) -> None:
    async with listen(real) as url, httpx.AsyncClient(base_url=url, headers=HEADERS) as admin:
        assert loaded(real) == {"acme/base": False}, "a base model is loaded at its first use"
        for name in ("a", "b"):
            put = await admin.put(
                f"/admin/adapters/{name}",
                json={"base": "acme/base", "path": str(model_folders / f"lora-{name}")},
            )
            assert put.json() == {"name": name, "base": "acme/base", "model": f"acme/base:{name}"}
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret-key", max_retries=0) as client:
            names = ["acme/base", "acme/base:a", "acme/base:b"]
            assert [model.id for model in (await client.models.list()).data] == names
            assert (await client.models.retrieve("acme/base:a")).id == "acme/base:a"
            together = await asyncio.gather(*(greedy(client, name) for name in names))
            alone = [await greedy(client, name) for name in names]
            assert together == alone
            assert len(set(alone)) == 3

            replaced = await admin.put(
                "/admin/adapters/a", json={"base": "acme/base", "path": str(model_folders / "lora-b")}
            )
            assert replaced.status_code == 200
            assert await greedy(client, "acme/base:a") == alone[2], "never the old weights under the old name"

            assert (await admin.delete("/admin/adapters/a")).json() == {"name": "a", "removed": True}
            assert (await admin.delete("/admin/adapters/a")).json() == {"name": "a", "removed": False}
            with pytest.raises(openai.NotFoundError):
                await greedy(client, "acme/base:a")

            assert (
                await admin.put(
                    "/admin/base-models", json={"name": "o", "path": str(model_folders / "other")}
                )
            ).status_code == 200
            assert await greedy(client, "o") != alone[0]


async def test_a_seed_repeats_an_answer_whatever_runs_beside_it(real: ModelRegistry, listen: Any) -> None:
    async with listen(real) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret-key") as client:

        async def sample(seed: int, stream: bool = False) -> str:
            asked = {
                "model": "acme/base",
                "messages": QUESTION,
                "seed": seed,
                "max_tokens": 10,
                "stream": stream,
            }
            answer: Any = await client.chat.completions.create(**asked)
            if stream:
                return "".join([c.choices[0].delta.content or "" async for c in answer])
            return str(answer.choices[0].message.content)

        alone = await sample(7)
        beside = await asyncio.gather(sample(7), sample(8), sample(7, stream=True), sample(9))
        assert beside[0] == beside[2] == alone
        assert len({beside[0], beside[1], beside[3]}) == 3


async def test_an_idle_model_leaves_memory_and_comes_back(model_folders: Path, listen: Any) -> None:
    registry = ModelRegistry(local_engines(2), max_requests=4, idle_unload_s=1e-6)
    await registry.put_base("base", model_folders / "base")
    await registry.put_adapter("a", "base", model_folders / "lora-a")
    async with (
        listen(registry) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret-key") as client,
    ):
        before = await greedy(client, "base:a")
        assert loaded(registry) == {"base": True, "base:a": True}
        async with registry.use("base"):
            assert await registry.unload_idle() == [], "a model in use is never unloaded"
        assert await registry.unload_idle() == ["base"]
        assert loaded(registry) == {"base": False, "base:a": False}
        assert await greedy(client, "base:a") == before


async def test_folders_that_are_no_models_are_refused(
    real: ModelRegistry, model_folders: Path, tmp_path: Path
) -> None:
    with pytest.raises(ChatRequestError, match=r"config\.json is missing"):
        await real.put_base("x", tmp_path / "nothing")
    with pytest.raises(ChatRequestError, match=r"adapter_config\.json is missing"):
        await real.put_adapter("x", "acme/base", model_folders / "base")
    with pytest.raises(ChatRequestError, match="does not exist") as unknown:
        await real.put_adapter("x", "nobody", model_folders / "lora-a")
    assert unknown.value.status == 404


async def test_a_model_that_cannot_load_says_why_and_is_tried_again(
    tmp_path: Path, model_folders: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((model_folders / "base" / "config.json").read_text())
    registry = ModelRegistry(local_engines(2), max_requests=4)
    await registry.put_base("broken", broken)
    for _ in range(2):
        with pytest.raises(ChatRequestError, match="cannot be loaded") as refused:
            async with registry.use("broken"):
                raise AssertionError("nothing was loaded")
        assert (refused.value.status, refused.value.code) == (503, "model_unavailable")
    assert registry.open_requests == 0
