"""Everything of the platform that starts processes: runs, and the inference server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy.orm import Session

from osmosis_platform.adapters.base_models import register_shipped
from osmosis_platform.adapters.shipped import shipped_models, trainer_python
from osmosis_platform.compute.children import Spawner
from osmosis_platform.compute.dev_server import dev_server_given_up, run_dev_server
from osmosis_platform.compute.environments import Environments, UvEnvironments
from osmosis_platform.compute.executor import execute_run, run_given_up
from osmosis_platform.compute.inference_server import InferenceServer
from osmosis_platform.compute.redaction import Redactor
from osmosis_platform.compute.sandbox import Sandbox, choose_sandbox
from osmosis_platform.compute.wheel import SdkWheel, sdk_wheel
from osmosis_platform.compute.worker import worker_command
from osmosis_platform.context import Platform
from osmosis_platform.dev_servers.service import QUEUE, RUN
from osmosis_platform.errors import PlatformError
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import Work
from osmosis_platform.runs.submit import EXECUTE, QUEUES
from osmosis_platform.settings import Settings

log = logging.getLogger("osmosis_platform.compute")

# How often a platform without trainer looks for one, in seconds.
TRAINER_LOOK_SECONDS = 5.0


class Supervisor:
    """Starts and watches children. Give its `work()` to the job runner; `close()` it after the runner has stopped.

    `api_url` is where workers reach this platform (loopback). `environments`, `worker_command` and `inference_command` take
    the place of what the settings say.
    """

    def __init__(
        self,
        platform: Platform,
        *,
        api_url: str | None = None,
        environments: Environments | None = None,
        worker_command: Callable[[str], list[str]] | None = None,
        inference_command: Sequence[str] | None = None,
    ) -> None:
        settings = platform.settings
        self.platform = platform
        self.api_url = api_url or loopback_url(settings)
        self.spawner = Spawner()
        self.sandbox: Sandbox = choose_sandbox(settings.sandbox)
        self.environments: Environments = environments or UvEnvironments(
            settings.data_dir / "environments", self._sdk_wheel, self.spawner, self.sandbox
        )
        self.redactors: dict[str, Redactor] = {}
        self._worker_command = worker_command
        self._wheel: SdkWheel | None = None
        self._wheel_guard = threading.Lock()
        self._closing = threading.Event()
        self.inference = InferenceServer(
            platform,
            self.spawner,
            inference_command or [str(trainer_python(settings)), "-m", "osmosis_trainer", "serve"],
        )

    def work(self) -> Mapping[str, Work]:
        """The jobs this does."""
        return {EXECUTE: Work(execute_run, run_given_up), RUN: Work(run_dev_server, dev_server_given_up)}

    def threads(self) -> Mapping[str, int]:
        """How many runs and development servers execute at the same time."""
        settings = self.platform.settings
        return {
            QUEUES["eval"]: settings.evaluation_slots,
            QUEUES["train"]: settings.training_slots,
            QUEUE: settings.dev_server_slots,
        }

    def register_models(self) -> None:
        """Make the base models that come with the trainer known. Without a trainer it says so, and waits for one."""
        said = ""
        while not self._closing.is_set():
            try:
                models = shipped_models(self.platform)
            except PlatformError as error:
                if error.message != said:
                    said = error.message
                    log.warning("the trainer's base models are registered once it is there: %s", said)
                self._closing.wait(TRAINER_LOOK_SECONDS)
                continue
            with self.platform.database.write() as session:
                register_shipped(session, models)
            if said:
                log.info("the trainer is there; its base models are registered: %s", ", ".join(models))
            return

    def worker_command(self, kind: str) -> list[str]:
        """The command of a run's worker (`eval` or `train`)."""
        return (self._worker_command or self._configured_worker)(kind)

    def _configured_worker(self, kind: str) -> list[str]:
        return worker_command(kind, self.platform.settings)

    @contextmanager
    def guarded(self, job: ClaimedJob) -> Iterator[Session]:
        """A transaction that only the holder of the job's lease can commit; raises LeaseLost."""
        with self.platform.database.write() as session:
            self.platform.jobs.guard(session, job)
            yield session

    def close(self) -> None:
        """End every child that is left."""
        self._closing.set()
        self.inference.close()
        self.spawner.close()

    def _sdk_wheel(self) -> SdkWheel:
        with self._wheel_guard:
            if self._wheel is None:
                self._wheel = sdk_wheel(self.platform.settings)
            return self._wheel


def loopback_url(settings: Settings) -> str:
    """Where this machine's processes reach the platform."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
