"""The first program in a sandbox: it starts commands for the host and ends them.

It runs by itself with the host's Python and no packages: its text is handed to ``python -c``. The host sends messages over a
socket, each with file descriptors; every command gets a parent of its own that keeps all its descendants together, also those
that detach from it.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
KILL_PASSES = 200


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    limits = json.loads(sys.argv[2])
    for name, value in limits.items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(getattr(resource, name), (value, value))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when the machine runs out of memory, sandboxes go first
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the parents of commands need no waiting for
    link.send(json.dumps({"ready": True}).encode())
    parents: dict[int, int] = {}
    while True:
        data, fds, _, _ = socket.recv_fds(link, 4096, 4)
        if not data:
            return
        message = json.loads(data)
        number = message["id"]
        if message["do"] == "kill":
            gone = kill_below(parents.pop(number, 0))
            link.send(json.dumps({"id": number, "killed": gone}).encode())
            continue
        try:
            pid = os.fork()
        except OSError as error:
            os.write(fds[3], f"cannot start the command: {error}\n".encode())
            link.send(json.dumps({"id": number, "exit": 126}).encode())
            pid = -1
        if pid == 0:
            keep(link, number, fds)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            parents[number] = pid


def keep(link: socket.socket, number: int, fds: list[int]) -> None:
    """Be the parent of one command until the last of its descendants is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Without the supervisor the host must find the socket closed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)
    pid = os.fork()
    if pid == 0:
        run(fds)
    for fd in fds:
        os.close(fd)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            os._exit(0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            link.send(json.dumps({"id": number, "exit": code if code >= 0 else 128 - code}).encode())


def run(fds: list[int]) -> None:
    """Become the command."""
    request_fd, *streams = fds
    try:
        os.setsid()
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        os.lseek(request_fd, 0, os.SEEK_SET)
        with open(request_fd) as file:
            request = json.load(file)
        os.chdir(request["cwd"])
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        os.write(2, f"cannot start the command: {error}\n".encode())
    finally:
        os._exit(126)


def kill_below(parent: int) -> bool:
    """Kill every descendant of a process, then the process. False when some may be left: they are only found through it."""
    gone = False
    if not os.path.exists(f"/proc/{parent}/stat"):
        return gone
    for _ in range(KILL_PASSES):
        below = descendants(parent)
        if not below:
            gone = True
            break
        for pid in below:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    with contextlib.suppress(OSError):
        os.kill(parent, signal.SIGKILL)
    return gone


def descendants(parent: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                state, ppid = file.read().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(ppid), []).append(int(name))
    found: list[int] = []
    queue = [parent]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


if __name__ == "__main__":
    main()
