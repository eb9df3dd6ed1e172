"""Finding a bubblewrap that works on this machine, and its command line."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from osmosis_ai.rollout.sandbox.errors import SandboxError

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
# Of /etc what programs need to find libraries and verify certificates. Private keys and accounts stay out.
_ETC = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
_SHARED_MEMORY_BYTES = 256 * 2**20
_TRIAL_TIMEOUT_S = 60

type Mount = tuple[Path, str, bool]
"""Source on the host, target inside, whether it is writable."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The program, and which of its safeguards this machine allows."""

    program: str
    user_namespace: bool
    nested_namespaces: bool
    sized: bool

    def options(self, *, root: Path, mounts: Sequence[Mount] = (), network: bool = False) -> list[str]:
        """The options that make the folder ``root`` the ``/`` of a command, with the system read-only in it.

        Inside there is one user, without any privilege, and nothing of the host but the system and the ``mounts``. With
        ``network`` it is the machine's, loopback included; otherwise there is none.
        """
        line = ["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
        line += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        if self.user_namespace:
            line += ["--unshare-user", "--uid", "0", "--gid", "0"]
            if not self.nested_namespaces:
                line += ["--disable-userns"]
        if not network:
            line += ["--unshare-net"]
        line += ["--hostname", "sandbox", "--bind", str(root), "/"]
        for source, target in _system(network):
            line += ["--ro-bind", str(source), target]
        # The kernel lets root change settings by its number alone, without any privilege.
        line += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
        line += [*(["--size", str(_SHARED_MEMORY_BYTES)] if self.sized else []), "--tmpfs", "/dev/shm"]
        for source, target, writable in mounts:
            line += ["--bind" if writable else "--ro-bind", str(source), target]
        return [*line, "--chdir", "/"]


@cache
def find_bubblewrap() -> Bubblewrap:
    """The bubblewrap of this machine with as many safeguards as it allows.

    Raises:
        SandboxError: when it is missing, or the machine forbids namespaces.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError(
            "the sandbox needs bubblewrap, and the program 'bwrap' is not on the PATH; install the package 'bubblewrap' "
            "(apt-get install bubblewrap), or choose another Harbor environment"
        )
    problem = ""
    # Root in a container that may not make user namespaces can often make the others.
    for user_namespace, nested in ((True, False), (True, True), (False, True)):
        for sized in (True, False):
            found = Bubblewrap(program, user_namespace, nested, sized)
            said = _trial(found)
            if said is None:
                return found
            problem = problem or said
    raise SandboxError(
        f"bubblewrap does not work on this machine: {problem}. It needs user namespaces (sysctl user.max_user_namespaces, "
        "kernel.apparmor_restrict_unprivileged_userns) and, inside a container, one that was started without a seccomp profile "
        "and without covered parts of /proc (docker run --security-opt seccomp=unconfined --security-opt "
        "systempaths=unconfined); or choose another Harbor environment"
    )


def clear_targets(root: Path, mounts: Sequence[Mount]) -> None:
    """Take links and other strange things out of the way of what is mounted in ``root``.

    While bubblewrap prepares a sandbox it can still see the host, so a link that was left in there could lead it out. No
    process of the sandbox may be running.
    """
    targets = [(source, target) for source, target, _ in mounts]
    targets += [*_system(network=True), (Path("/proc"), "/proc"), (Path("/dev"), "/dev")]
    for source, target in targets:
        path = root
        parts = [part for part in Path(target).parts if part not in ("/", "..")]
        for depth, part in enumerate(parts, start=1):
            path = path / part
            folder = depth < len(parts) or source.is_dir()
            if path.is_symlink() or (path.exists() and path.is_dir() != folder):
                path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex}"))
            if folder:
                path.mkdir(exist_ok=True)


def prepare_root(root: Path) -> None:
    """Make the folder that becomes ``/``: the links of the system, accounts, and empty folders."""
    for name in ("etc", "home", "mnt", "opt", "root", "run", "srv", "tmp", "var/tmp", "proc", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for name in _SYSTEM:
        path = Path("/") / name
        if path.is_symlink():
            (root / name).symlink_to(os.readlink(path))
        elif path.is_dir():
            (root / name).mkdir()
    etc = {
        "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": "root:x:0:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    for name, text in etc.items():
        (root / "etc" / name).write_text(text)


def _system(network: bool) -> list[tuple[Path, str]]:
    names = [*_SYSTEM, *(f"etc/{name}" for name in (*_ETC, *(("resolv.conf",) if network else ())))]
    paths = [Path("/") / name for name in names]
    return [
        (path, str(path))
        for path in paths
        if path.exists() and not (path.is_symlink() and path.parent == Path("/"))
    ]


def _trial(found: Bubblewrap) -> str | None:
    with tempfile.TemporaryDirectory(prefix="osmosis-sandbox-trial-") as folder:
        prepare_root(Path(folder))
        try:
            done = subprocess.run(
                [found.program, *found.options(root=Path(folder)), "--", "/bin/sh", "-c", "true"],
                capture_output=True,
                text=True,
                timeout=_TRIAL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"it ended with status {done.returncode}"
