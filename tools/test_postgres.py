"""Runs the platform's tests on a Postgres of their own: a server in a temporary folder, ended afterwards.

Needs Postgres's programs (Debian: `postgresql`) and, as root, the user `postgres`, since Postgres refuses to run as root.
Arguments go to pytest.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

DURABLE_OFF = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


def programs() -> Path:
    """The folder of initdb and postgres; the newest version's."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    if not found:
        sys.exit(
            "Postgres is not installed: no initdb on the PATH or below /usr/lib/postgresql (apt-get install postgresql)"
        )
    return found[-1]


def main(arguments: list[str]) -> int:
    """Start a server, run the tests, end it; the exit status of the tests."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is ended then too
    folder = Path(tempfile.mkdtemp(prefix="osmosis-postgres-"))
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(folder, "postgres", "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, tools = folder / "data", programs()
    initdb = [
        tools / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
    ]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
    options = [
        f"-c{option}"
        for option in (*DURABLE_OFF, "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}")
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [tools / "postgres", "-D", data, "-p", str(port), *options],
            stdout=log,
            stderr=log,
            cwd="/",
            **user,
        )
    try:
        ready = [tools / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode != 0:
            if server.poll() is not None:
                sys.exit(f"Postgres ended: {(folder / 'log').read_text()[-2000:]}")
        env = {**os.environ, "TEST_POSTGRES_URL": f"postgresql://postgres@127.0.0.1:{port}/postgres"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "tests/platform", "-m", "not slow", *arguments],
            env=env,
            check=False,
        ).returncode
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
