"""The platform process: binds its port, opens the folder, does jobs, answers requests, and ends cleanly on SIGTERM."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from osmosis_platform.app import create_app
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.context import Platform, open_platform
from osmosis_platform.datasets.jobs import WORK as DATASET_WORK
from osmosis_platform.errors import CannotStart
from osmosis_platform.folder import FolderLock, identity_file
from osmosis_platform.housekeeping import Housekeeping
from osmosis_platform.hugging_face.jobs import WORK as HUB_WORK
from osmosis_platform.hugging_face.uploads import QUEUE as HUB_UPLOADS
from osmosis_platform.jobs.runner import JobRunner
from osmosis_platform.repositories.jobs import WORK as REPOSITORY_WORK
from osmosis_platform.repositories.mirrors import QUEUE as FETCHES
from osmosis_platform.repositories.polling import Polling
from osmosis_platform.settings import Settings
from osmosis_platform.version import VERSION
from osmosis_platform.webhooks.jobs import WORK as WEBHOOK_WORK
from osmosis_platform.webhooks.service import QUEUE as WEBHOOKS

log = logging.getLogger("osmosis_platform")

LIGHT_THREADS = 2
WEBHOOK_THREADS = 2  # a receiver that does not answer holds up webhooks only
FETCH_THREADS = 2  # and a git host that does not, fetches only
HUB_THREADS = 1
REQUEST_SECONDS = 5
JOB_SECONDS = 30.0


def serve(settings: Settings) -> None:
    """Run the platform until SIGTERM or SIGINT; raises CannotStart, with everything that is in the way at once."""
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(listening(settings.host, settings.port))
        except CannotStart as error:
            raise _with_folder(error, settings.data_dir) from error
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        platform = open_platform(settings)
        try:
            with working(platform):
                _answer(platform, listener)
        finally:
            platform.close()
    log.info("stopped")


def _with_folder(error: CannotStart, folder: Path) -> CannotStart:
    """The same error; where the folder is in use too, it says so, since another port alone would not help."""
    try:
        FolderLock.probe(folder)
    except CannotStart as second:
        return CannotStart(f"{error.message} {second.message}", code=error.code)
    return error


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket; raises CannotStart that names the port when it is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotStart(f"Cannot listen on {host}: {error.strerror or error}.") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            raise CannotStart(
                f"Cannot listen on {host} port {port}: {error.strerror or error}. "
                "Stop what uses the port, or choose another with --port.",
                code="PORT_UNAVAILABLE",
            ) from error
        yield listener


@contextmanager
def working(platform: Platform) -> Iterator[None]:
    """Run jobs and children meanwhile. At the end jobs are given back and children stopped; runs continue at the next start."""
    supervisor = Supervisor(platform)
    platform.supervisor = supervisor
    threading.Thread(target=supervisor.register_models, name="base-models", daemon=True).start()
    runner = JobRunner(
        platform,
        {**DATASET_WORK, **REPOSITORY_WORK, **WEBHOOK_WORK, **HUB_WORK, **supervisor.work()},
        {
            "light": LIGHT_THREADS,
            WEBHOOKS: WEBHOOK_THREADS,
            FETCHES: FETCH_THREADS,
            HUB_UPLOADS: HUB_THREADS,
            **supervisor.threads(),
        },
    )
    housekeeping = Housekeeping(platform)
    housekeeping.start()
    polling = Polling(platform)
    polling.start()
    runner.start()
    try:
        yield
    finally:
        housekeeping.stop()
        polling.stop()
        if not runner.stop(JOB_SECONDS):
            log.warning("some jobs did not stop in %.0f s; they continue at the next start", JOB_SECONDS)
        supervisor.close()
        platform.supervisor = None


class Server(uvicorn.Server):
    """uvicorn, with word when it is ready."""

    def __init__(self, config: uvicorn.Config, platform: Platform) -> None:
        super().__init__(config)
        self._platform = platform

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then print the address and leave `platform.json` in the data folder."""
        await super().startup(sockets)
        if not self.should_exit:
            _announce(self._platform)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of open pages, which would last, then stop."""
        self._platform.live.close()
        await super().shutdown(sockets)


def _answer(platform: Platform, listener: socket.socket) -> None:
    config = uvicorn.Config(
        create_app(platform),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=REQUEST_SECONDS,
        proxy_headers=True,
        loop="asyncio",
        http="h11",  # refuses heads without end; httptools, which rollout servers use, does not
    )
    # uvicorn raises the signal again when it has stopped; these let us go on to our own end.
    before = {number: signal.signal(number, _noted) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        Server(config, platform).run(sockets=[listener])
    finally:
        with suppress(FileNotFoundError):
            identity_file(platform.settings.data_dir).unlink()
        for number, handler in before.items():
            signal.signal(number, handler)


def _noted(_number: int, _frame: object) -> None:
    log.info("stopping")


def _announce(platform: Platform) -> None:
    settings = platform.settings
    content = {
        "pid": os.getpid(),
        "host": settings.host,
        "port": settings.port,
        "url": settings.resolved_public_url,
        "version": VERSION,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = identity_file(settings.data_dir)
    staging = path.with_suffix(".new")
    staging.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    staging.replace(path)
    log.info(
        "Osmosis %s is ready at %s (data in %s)", VERSION, settings.resolved_public_url, settings.data_dir
    )
