"""Bringing tasks from git repositories and Harbor's registry to this machine."""

import asyncio
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from harbor.models.task.id import GitTaskId, LocalTaskId, PackageTaskId

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class TaskFetchError(RuntimeError):
    """A task could not be brought to this machine."""


class TaskFetcher:
    """Fetches tasks into Harbor's cache, each only once at a time.

    A branch is resolved to its commit first: Harbor replaces the cached folder of a name that may change, under rollouts that
    are copying it, but never that of a commit.
    """

    def __init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def fetch(self, task_id: LocalTaskId | PackageTaskId | GitTaskId) -> Path:
        """The folder of the task.

        Raises:
            TaskFetchError: when it cannot be fetched; says what git or the registry said, without credentials in addresses.
        """
        if isinstance(task_id, LocalTaskId):
            return Path(task_id.get_local_path())
        secret, shown = "", str(task_id.get_name())
        if isinstance(task_id, GitTaskId):
            secret, shown = task_id.git_url, public_address(task_id.git_url)
        try:
            if isinstance(task_id, GitTaskId):
                task_id = await _at_commit(task_id)
            async with self._locks[str(task_id)]:
                return await _download(task_id)
        except Exception as error:
            said = _what_git_said(error) if isinstance(error, subprocess.CalledProcessError) else str(error)
            if secret:
                said = said.replace(secret, shown)
            raise TaskFetchError(
                f"cannot fetch the harbor task {task_id.get_name()} from {shown}: {said}"
            ) from (None if secret != shown else error)


def public_address(url: str) -> str:
    """The address of a repository without a user name or a password in it."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


async def _download(task_id: Any) -> Path:
    # Costs more than the rest of Harbor, and most backends fetch nothing.
    from harbor.tasks.client import TaskClient

    downloaded = await TaskClient().download_tasks(task_ids=[task_id])
    return Path(downloaded.results[0].path)


async def _at_commit(task_id: GitTaskId) -> GitTaskId:
    """The task at the commit that its branch or tag (none: the default branch) has now."""
    wanted = task_id.git_commit_id
    if wanted is not None and _COMMIT.fullmatch(wanted.lower()):
        return task_id
    command = ["git", "ls-remote", "--", task_id.git_url, wanted or "HEAD"]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
    )
    try:
        stdout, stderr = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stdout, stderr)
    found = stdout.decode().split()
    # An abbreviated commit is no name that a repository lists; git may know it nevertheless.
    return task_id.model_copy(update={"git_commit_id": found[0]}) if found else task_id


def _what_git_said(error: subprocess.CalledProcessError) -> str:
    text = (
        error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else str(error.stderr or "")
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else f"git ended with status {error.returncode}"
