"""Putting a run together from its spec: engine, gateway, rollout controller, dataset."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial

from osmosis_ai.datasets import DatasetRow, RowReader
from osmosis_ai.rollout.controller import RolloutController
from osmosis_ai.worker.run_client import RunClient
from osmosis_ai.worker.spec import TrainSpec
from osmosis_trainer import tiny
from osmosis_trainer.collect.rollouts import RolloutRunner
from osmosis_trainer.collect.stop import StopSignal
from osmosis_trainer.engines.opening import EngineRequest, open_engine
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.gateway.policy_gateway import PolicyGateway
from osmosis_trainer.parts import Parts
from osmosis_trainer.report import Report
from osmosis_trainer.sample_files import SampleFiles
from osmosis_trainer.settings import RunSettings

_CACHED_ROWS = 4096
_DEFAULT_CONCURRENCY = 32


@asynccontextmanager
async def open_parts(spec: TrainSpec, client: RunClient, stop: StopSignal) -> AsyncGenerator[Parts]:
    """Everything a run needs, ready to work; closed when the block ends."""
    settings = RunSettings.from_config(spec.config)
    rows = RowReader(spec.dataset_path)
    if len(rows) != spec.dataset_rows:
        raise ConfigError(f"{spec.dataset_path} has {len(rows)} rows, the spec says {spec.dataset_rows}")
    client.log(f"loading {spec.base_model.name}", step="init")
    engine = await open_engine(
        EngineRequest(
            spec.base_model.path,
            spec.base_model.name,
            settings,
            spec.work_dir,
            partial(client.log, step="init"),
            spec.secrets,
        )
    )
    try:
        gateway = PolicyGateway(engine)
        runner = RolloutRunner(gateway, row_cache(rows), settings)
        async with RolloutController(
            rollout_url=spec.rollout_url,
            chat=gateway,
            instance_id=spec.rollout_instance_id,
            on_result=runner.store_result,
        ) as controller:
            yield Parts(
                settings=settings,
                engine=engine,
                rows=len(rows),
                run_attempt=partial(runner.run, controller),
                report=Report(client, gateway.view, SampleFiles(spec.artifact_root)),
                stop=stop,
                work_dir=spec.work_dir,
                concurrency=concurrency(settings, await controller.capacity()),
                tiny_model=spec.base_model.name in tiny.model_names(),
            )
    finally:
        await engine.close()
        rows.close()


def concurrency(settings: RunSettings, capacity: int | None) -> int:
    """Rollouts open at a time: what the configuration says, but no more than the rollout server can hold."""
    wanted = settings.advanced.max_concurrent_rollouts
    return min(wanted or capacity or _DEFAULT_CONCURRENCY, capacity or wanted or _DEFAULT_CONCURRENCY)


def row_cache(rows: RowReader) -> Callable[[int], DatasetRow]:
    """Rows by index; the samples of a prompt group read theirs once."""

    @lru_cache(maxsize=_CACHED_ROWS)
    def read(index: int) -> DatasetRow:
        return rows.read([index])[0]

    return read
