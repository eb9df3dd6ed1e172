"""What a rollout server sees of the machine: with bubblewrap, the system read-only, its own folders, and nothing else.

Rollouts are code of users. Inside the sandbox there is no data folder, no home, no other run and no other process. The network
is shared: callbacks and model calls go over loopback.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from osmosis_platform.compute import unprivileged
from osmosis_platform.errors import CannotStart

log = logging.getLogger("osmosis_platform.compute")

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "opt")
# Of /etc only what programs need to resolve names, verify certificates and load libraries.
_ETC = [
    "alternatives",
    "ca-certificates",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
]


_ROOT_BYTES = 64 * 1024**2
_SHARED_BYTES = 256 * 1024**2
_TMP_BYTES = 1024**3
_USER = "1000"
# Who a sandbox is for the machine where the platform is root: a number that no account has (Debian reserves 65000 to 65533).
_UNPRIVILEGED = 65533


class Sandbox(Protocol):
    """A way to confine a command."""

    @property
    def name(self) -> str:
        """A word for it."""
        ...

    def command(
        self, command: Sequence[str], *, cwd: Path, readonly: Sequence[Path], writable: Sequence[Path]
    ) -> list[str]:
        """The command line that runs `command` confined: it sees the given folders at their own paths."""
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces of its own for mounts, processes, IPC and the host name.

    With a user namespace a rollout can make sandboxes of its own, and without `user` root is an ordinary user inside. With
    `user`, only for root, everything runs as that user and the writable folders become that user's: root's sandbox has to cover
    parts of /proc, and the kernel then gives out no other /proc in it. The network is the machine's: model calls and callbacks
    go over loopback. Memory-backed folders are bounded where the program can do that (`sized`, since 0.7).
    """

    program: str
    user_namespace: bool = True
    sized: bool = True
    user: int | None = None
    name: str = "bubblewrap"

    def command(
        self, command: Sequence[str], *, cwd: Path, readonly: Sequence[Path], writable: Sequence[Path]
    ) -> list[str]:
        """See Sandbox."""
        arguments = [self.program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        if self.user_namespace:
            arguments += ["--unshare-user", "--uid", _USER, "--gid", _USER]
        arguments += ["--hostname", "rollout", "--cap-drop", "ALL", *self._memory_folder("/", _ROOT_BYTES)]
        for name in _SYSTEM:
            path = Path("/") / name
            if path.is_symlink():
                arguments += ["--symlink", os.readlink(path), str(path)]
            elif path.exists():
                arguments += ["--ro-bind", str(path), str(path)]
        for name in _ETC:
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        arguments += ["--proc", "/proc"]
        if os.geteuid() == 0 and self.user is None:
            # The kernel's settings are global, and writing them asks for the real user alone: root outside stays root there.
            arguments += ["--ro-bind", "/proc/sys", "/proc/sys"]
        arguments += ["--dev", "/dev", *self._memory_folder("/dev/shm", _SHARED_BYTES)]
        arguments += [*self._memory_folder("/tmp", _TMP_BYTES), "--dir", "/tmp/home"]
        for number, folder in enumerate([*readonly, *writable]):
            source = str(folder) if self.user is None else f"{unprivileged.STAGE}/{number}"
            arguments += ["--ro-bind" if number < len(readonly) else "--bind", source, str(folder)]
        arguments += ["--chdir", str(cwd), "--", *command]
        return arguments if self.user is None else _as_user(self.user, arguments, readonly, writable)

    def _memory_folder(self, path: str, size: int) -> list[str]:
        return [*(["--size", str(size)] if self.sized else []), "--tmpfs", path]


def _as_user(user: int, command: list[str], readonly: Sequence[Path], writable: Sequence[Path]) -> list[str]:
    launcher = [sys.executable, "-I", "-S", unprivileged.__file__, str(user)]
    return [*launcher, *map(str, readonly), "--own", *map(str, writable), "--", *command]


@dataclass(frozen=True, slots=True)
class NoSandbox:
    """Runs the command as it is: with the rights of the platform."""

    name: str = "none"

    def command(
        self, command: Sequence[str], *, cwd: Path, readonly: Sequence[Path], writable: Sequence[Path]
    ) -> list[str]:
        """See Sandbox."""
        return list(command)


def choose_sandbox(setting: str) -> Sandbox:
    """The sandbox for `auto`, `bubblewrap` or `none`; raises CannotStart when `bubblewrap` is demanded and does not work."""
    if setting == "none":
        log.warning(
            "rollouts run without a sandbox, as configured: they can read and change what the platform can"
        )
        return NoSandbox()
    found = find_bubblewrap()
    if isinstance(found, Bubblewrap):
        return found
    if setting == "bubblewrap":
        raise CannotStart(f"OSMOSIS_SANDBOX is bubblewrap, but it does not work here: {found}")
    log.warning(
        "rollouts run WITHOUT a sandbox (%s): they can read and change what the platform can. Run only code you trust, or "
        "install bubblewrap",
        found,
    )
    return NoSandbox()


def find_bubblewrap() -> Bubblewrap | str:
    """A bubblewrap that works here, or why there is none."""
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap is not installed"
    reason = ""
    kinds: list[tuple[bool, int | None]] = [(True, None), (False, None)]
    if os.geteuid() == 0:
        kinds.insert(0, (True, _UNPRIVILEGED))
    for (user_namespace, user), sized in itertools.product(kinds, (True, False)):
        sandbox = Bubblewrap(program, user_namespace, sized, user)
        problem = _trial(sandbox)
        if problem is None:
            return sandbox
        reason = reason or problem
    return reason


def _trial(sandbox: Bubblewrap) -> str | None:
    base = Path(sys.base_prefix)
    python = str(base / "bin" / "python3")
    command = sandbox.command([python, "-I", "-c", ""], cwd=base, readonly=(base,), writable=())
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap cannot run: {error}"
    return (
        None
        if done.returncode == 0
        else (done.stderr.strip() or f"bwrap ended with status {done.returncode}")
    )
