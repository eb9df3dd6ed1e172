"""A platform in a process of its own, to be killed: `python platform_process.py DATA KEYS SCRIPT`. Prints its address."""

import importlib.util
import socket
import sys
from pathlib import Path

import uvicorn

from osmosis_platform.app import create_app
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.context import open_platform
from osmosis_platform.jobs.runner import JobRunner
from osmosis_platform.settings import Settings

HERE = Path(__file__).parent


def main() -> None:
    spec = importlib.util.spec_from_file_location("compute_conftest", HERE / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    fixtures = importlib.util.module_from_spec(spec)
    sys.modules["compute_conftest"] = fixtures
    spec.loader.exec_module(fixtures)

    platform = open_platform(Settings(data_dir=Path(sys.argv[1]), key_file=Path(sys.argv[2])))
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    command = [sys.executable, str(HERE / "scripted_worker.py"), sys.argv[3]]
    platform.supervisor = Supervisor(
        platform,
        api_url=address,
        environments=fixtures.ThisEnvironment(),
        worker_command=lambda kind: command,
        inference_command=[sys.executable, str(HERE / "scripted_inference.py")],
    )
    JobRunner(platform, platform.supervisor.work(), platform.supervisor.threads()).start()
    print(address, flush=True)
    uvicorn.Server(uvicorn.Config(create_app(platform), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
