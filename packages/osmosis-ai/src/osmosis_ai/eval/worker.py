"""The evaluation worker: ``python -m osmosis_ai.eval.worker``, started by the platform with a spec on standard input."""

import asyncio
import logging
import signal
import sys
from typing import Any

from osmosis_ai.datasets.rows import RowReader
from osmosis_ai.errors import OsmosisError
from osmosis_ai.eval.policy.base import EvalPolicy
from osmosis_ai.eval.policy.hosted import HostedPolicy
from osmosis_ai.eval.policy.provider import ProviderPolicy
from osmosis_ai.eval.runner import EvalOutcome, EvalRunner
from osmosis_ai.eval.sink import RunClientSink
from osmosis_ai.worker.exit_status import ExitStatus
from osmosis_ai.worker.run_client import RunApiError, RunClient
from osmosis_ai.worker.running import run_worker
from osmosis_ai.worker.spec import EvalSpec, HostedPolicySpec


def main() -> int:
    """Read the spec, evaluate, and return the exit status of the process."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return run_worker(EvalSpec, work)


async def work(spec: EvalSpec, client: RunClient) -> int:
    """Evaluate and report. SIGTERM ends the run gracefully, like a stop on the platform."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.stop_requested.set)
    try:
        outcome = await evaluate(spec, client)
    except RunApiError:
        raise
    except OsmosisError as error:
        client.log(error.message, level="error", step="eval")
        await client.failed(error.message, error.code.lower())
        return ExitStatus.FAILED
    await client.flush()
    return ExitStatus.STOPPED if outcome.status == "stopped" else ExitStatus.FINISHED


async def evaluate(spec: EvalSpec, client: RunClient) -> EvalOutcome:
    """Run the evaluation of ``spec`` and report to ``client``."""
    policy = make_policy(spec)
    rows = RowReader(spec.dataset_path)
    try:
        runner = EvalRunner(
            rows=rows,
            config=spec.config,
            policy=policy,
            sink=RunClientSink(client),
            rollout_url=spec.rollout_url,
            instance_id=spec.rollout_instance_id,
            artifact_root=spec.artifact_root,
            work_dir=spec.work_dir,
        )
        return await runner.run()
    finally:
        rows.close()
        await policy.aclose()


def make_policy(spec: EvalSpec) -> EvalPolicy:
    """The policy that the spec names."""
    options: dict[str, Any] = {"overrides": spec.config.advanced.policy}
    if isinstance(spec.policy, HostedPolicySpec):
        options["seed"] = spec.config.advanced.seed
        return HostedPolicy(spec.policy.base_url, spec.policy.api_key, spec.policy.model, **options)
    return ProviderPolicy(spec.policy.model, spec.policy.env, **options)


if __name__ == "__main__":
    raise SystemExit(main())
