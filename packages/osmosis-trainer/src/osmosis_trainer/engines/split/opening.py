"""The split engine as the configuration of a run asks for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from transformers import AutoTokenizer

from osmosis_trainer.engines.model_limits import model_context
from osmosis_trainer.engines.opening import EngineRequest
from osmosis_trainer.engines.split.durable_learner import DurableLearner
from osmosis_trainer.engines.split.engine import SplitEngine
from osmosis_trainer.engines.split.learner_group import LearnerSettings
from osmosis_trainer.engines.split.logprob_modes import require_temperature, require_top_p
from osmosis_trainer.engines.split.pool import ServerPool
from osmosis_trainer.engines.split.probe import Tolerance, probe_prompts
from osmosis_trainer.engines.split.publishing import Publisher
from osmosis_trainer.engines.split.sglang_server import SglangServer
from osmosis_trainer.engines.split.versions import Versions
from osmosis_trainer.engines.split.vllm_server import VllmServer
from osmosis_trainer.engines.split.wire import Connection, SamplingServer
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.learner.lora import LoraSettings
from osmosis_trainer.settings import RunSettings

URL_VARIABLE, KEY_VARIABLE = "SAMPLING_SERVERS", "SAMPLING_API_KEY"

_DIALECTS: dict[str, type[VllmServer] | type[SglangServer]] = {"vllm": VllmServer, "sglang": SglangServer}
# Adapters that are on a server at once beside those of older versions still in use: the current one and the next.
_SLOTS_BESIDE_STALENESS = 2


async def open_engine(request: EngineRequest) -> SplitEngine:
    """Start the learner processes, connect to the servers, publish the first policy and check what comes back.

    Raises ConfigError for servers and settings that do not fit together, SamplerFaultError when a server does not sample
    from the base model in `request.base_model`.
    """
    servers = connect(request)
    learner = DurableLearner(learner_settings(request), request.work_dir / "learner-state", request.log)
    return await assemble(request, learner, servers)


async def assemble(
    request: EngineRequest, learner: DurableLearner, servers: list[SamplingServer]
) -> SplitEngine:
    """The engine over a learner and servers; both are closed when it cannot be opened."""
    settings = request.settings
    pool: ServerPool | None = None
    try:
        described = await learner.open()
        request.log(
            f"{settings.advanced.split_learners} learner process(es) on {described['device']} in {described['dtype']}, "
            f"each with {described['base_bytes'] / 1e6:.4g} MB of the base model"
        )
        tokenizer = AutoTokenizer.from_pretrained(request.base_model, local_files_only=True)
        context = min(
            model_context(request.base_model),
            settings.training.max_prompt_length + settings.training.max_response_length,
        )
        versions = Versions(
            request.work_dir.absolute() / "published",
            probe_prompts(tokenizer, context),
            Tolerance.of(described["dtype"], settings.advanced.split_tolerance),
        )
        wait = settings.advanced.split_wait_s
        pool = ServerPool(servers, versions.prepare, request.log, wait)
        await pool.open()
        context = min([context, *(m.facts.max_context for m in pool.up if m.facts and m.facts.max_context)])
        if described["device"] != "cpu":
            await learner.rehearse(context)
        publisher = Publisher(learner, versions, pool, wait_s=wait)
        engine = SplitEngine(tokenizer, context, learner, versions, pool, publisher)
        await publisher.publish(0)
        await _check_servers(request, engine)
    except BaseException:
        if pool is not None:
            await pool.close()
        else:
            for server in servers:
                await server.close()
        await learner.close()
        raise
    request.log(
        f"{len(servers)} sampling server(s) hold the policy; largest difference to the learner {publisher.gap:.2g} nats"
    )
    return engine


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers are, and the key they are given."""

    urls: list[str]
    key: str | None


def address(request: EngineRequest) -> Address:
    """The servers of the configuration, else those of the deployment's environment.

    Addresses from the configuration get a key only from the run's own secrets; the deployment's key goes to the
    deployment's servers alone, so that no run can send it elsewhere.
    """
    advanced = request.settings.advanced
    key = request.secret("split_key")
    listed = advanced.split_servers
    if listed is None:
        listed, key = os.environ.get(URL_VARIABLE), key or os.environ.get(KEY_VARIABLE)
    urls = [url.strip().rstrip("/") for url in (listed or "").split(",") if url.strip()]
    if not urls:
        raise ConfigError(
            "the engine 'split' needs sampling servers: set [advanced] split_servers to their addresses, separated by "
            f"commas (or {URL_VARIABLE} in the environment of the deployment)"
        )
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise ConfigError(
                "[advanced] split_servers must be http:// or https:// addresses without user, password or query"
            )
    if len(set(urls)) < len(urls):
        raise ConfigError("[advanced] split_servers names a server twice")
    return Address(urls, key)


def connect(request: EngineRequest) -> list[SamplingServer]:
    """Clients of the configured servers; nothing is sent yet."""
    advanced, where = request.settings.advanced, address(request)
    dialect = _DIALECTS[advanced.split_dialect]
    return [
        dialect(Connection(url, where.key, advanced.split_timeout_s), send_seeds=advanced.split_seeds)
        for url in where.urls
    ]


def learner_settings(request: EngineRequest) -> LearnerSettings:
    """The learner of the run."""
    advanced = request.settings.advanced
    cores = os.cpu_count() or 2
    return LearnerSettings(
        base_model=request.base_model,
        processes=advanced.split_learners,
        lora=LoraSettings(rank=advanced.lora_rank, alpha=advanced.lora_alpha, seed=advanced.seed % 2**32),
        threads=advanced.torch_threads or max(1, cores // (2 * advanced.split_learners)),
        token_budget=advanced.tokens_per_micro_batch,
        weight_decay=advanced.weight_decay,
        sharding=advanced.split_sharding,
    )


async def _check_servers(request: EngineRequest, engine: SplitEngine) -> None:
    """What can be asked only once a policy is there: how many adapters fit, and what the log-probabilities are."""
    settings: RunSettings = request.settings
    needed = settings.advanced.max_staleness + _SLOTS_BESIDE_STALENESS
    name = engine.versions.live[0].name
    prompt = engine.versions.prompts[0]
    known: list[int] = []
    for member in engine.pool.up:
        slots = (await member.server.facts()).slots
        if slots is None:
            request.log(f"{member.server.url} does not tell how many adapters it holds; {needed} are needed")
        elif slots < needed:
            raise ConfigError(
                f"{member.server.url} holds {slots} adapters, {needed} are needed (max_staleness + 2); start vLLM with "
                f"--max-loras {needed} (SGLang: --max-loras-per-batch {needed})"
            )
        else:
            known.append(slots)
        if settings.sampling.rollout_temperature != 1.0:
            temperature = settings.sampling.rollout_temperature
            await require_temperature(member.server, name, prompt, temperature, engine.learner.score)
        if settings.sampling.rollout_top_p < 1.0:
            await require_top_p(member.server, name, prompt)
    engine.publisher.slots = min(known, default=needed)
