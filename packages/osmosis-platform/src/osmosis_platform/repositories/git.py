"""Bare repositories of the built-in git host, through the `git` command.

Every call runs without the machine's own git configuration, without prompts and with a time limit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from osmosis_platform.errors import InvalidInput, NotFound, PlatformError

# Of folders that are repositories soon; no name of one begins so.
UNFINISHED = ".making-"
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$")
SHA = re.compile(r"^[0-9a-f]{7,40}$")
MAX_EXPORT_BYTES = 512 * 1024 * 1024


class GitError(PlatformError):
    """git refused or failed; the message carries its last line."""

    code = "GIT_FAILED"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: full SHA, author name, first line of its message."""

    sha: str
    author: str
    subject: str


def git_environment() -> dict[str, str]:
    """Environment of git: nothing of the user's configuration, no prompt, no pager."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }


def run_git(
    *arguments: str, cwd: Path | None = None, extra: Mapping[str, str] | None = None, timeout: float = 60
) -> bytes:
    """Run git and return its output. Raises GitError."""
    command = ["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**git_environment(), **(extra or {})}, capture_output=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise GitError(
            "git is not installed on this machine: install it and start the platform again"
        ) from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git {arguments[0]} took longer than {timeout:.0f} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(
            f"git {arguments[0]} failed: {lines[-1] if lines else f'exit status {done.returncode}'}"
        )
    return done.stdout


class GitHost:
    """All repositories below one folder: `<folder>/<owner>/<name>.git`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()  # git runs in other folders
        self._fetching: dict[str, threading.Lock] = {}

    def fetching(self, full_name: str) -> threading.Lock:
        """Held by whoever fetches into a mirror: one at a time."""
        return self._fetching.setdefault(full_name.lower(), threading.Lock())

    def path(self, full_name: str) -> Path:
        """The bare repository's folder (lower-cased, so that two names that differ in case are one)."""
        if not NAME.match(full_name) or ".." in full_name:
            raise InvalidInput(f"{full_name!r} is not a repository name: it must look like owner/repo")
        return self.folder / f"{full_name.lower()}.git"

    def create(self, full_name: str, *, default_branch: str = "main") -> Path:
        """Create an empty repository. Raises InvalidInput when it exists."""
        path = self.path(full_name)
        if path.exists():
            raise InvalidInput(f"repository {full_name} exists already")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self.folder))
        run_git("init", "--quiet", "--bare", f"--initial-branch={default_branch}", str(aside))
        run_git("config", "http.receivepack", "true", cwd=aside)
        aside.rename(path)
        return path

    def move(self, full_name: str, new_name: str) -> None:
        """Give a repository another name. Raises InvalidInput when that one exists."""
        target = self.path(new_name)
        if target.exists():
            raise InvalidInput(f"repository {new_name} exists already")
        self.path(full_name).rename(target)

    def keep_commits(self, full_name: str, of: str) -> None:
        """Add every commit of another repository, without its branches: runs pinned to them go on, clones do not see them."""
        target, source = self.path(full_name) / "objects", self.path(of) / "objects"
        run_git("config", "gc.pruneExpire", "never", cwd=target.parent)
        for path in source.rglob("*"):
            within = path.relative_to(source)
            if path.is_dir() or within.parts[0] == "info" or path.name.startswith("tmp_"):
                continue
            (target / within).parent.mkdir(exist_ok=True)
            with suppress(FileExistsError, FileNotFoundError):
                os.link(path, target / within)  # objects are named by their content and never change

    def remove(self, full_name: str) -> None:
        """Take a repository away with all that is in it; one that is not there is fine."""
        shutil.rmtree(self.path(full_name), ignore_errors=True)

    def commit_tree(
        self, full_name: str, tree: Path, *, branch: str, message: str, author: str, email: str
    ) -> str:
        """Make the files below `tree` the first commit of a branch; returns its SHA."""
        identity = {
            "GIT_AUTHOR_NAME": author,
            "GIT_AUTHOR_EMAIL": email,
            "GIT_COMMITTER_NAME": author,
            "GIT_COMMITTER_EMAIL": email,
        }
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            shutil.copytree(tree, work, symlinks=True)
            run_git("init", "--quiet", f"--initial-branch={branch}", cwd=work)
            run_git("add", "--all", cwd=work)
            run_git("commit", "--quiet", "--message", message, cwd=work, extra=identity)
            run_git("push", "--quiet", str(self.path(full_name)), f"HEAD:refs/heads/{branch}", cwd=work)
            return run_git("rev-parse", "HEAD", cwd=work).decode().strip()

    def branches(self, full_name: str) -> dict[str, str]:
        """Branch name to head SHA."""
        path = self.path(full_name)
        if not path.is_dir():
            raise NotFound(f"repository {full_name} is not on this platform's git host")
        out = run_git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/", cwd=path).decode()
        pairs = (line.split(" ", 1) for line in out.splitlines())
        return {ref.removeprefix("refs/heads/"): sha for sha, ref in pairs}

    def commit(self, full_name: str, revision: str) -> Commit:
        """The commit of a SHA (7 to 40 hex digits). Raises NotFound."""
        if not SHA.match(revision):
            raise InvalidInput(f"{revision!r} is not a commit SHA (7 to 40 hexadecimal digits)")
        try:
            out = run_git(
                "show",
                "--no-patch",
                "--format=%H%n%an%n%s",
                f"{revision}^{{commit}}",
                cwd=self.path(full_name),
            )
        except GitError:
            raise NotFound(
                f"commit {revision} was not found in repository {full_name}: push it first"
            ) from None
        sha, author, subject = out.decode("utf-8", "replace").split("\n")[:3]
        return Commit(sha, author, subject)

    def list_folders(self, full_name: str, sha: str, folder: str) -> list[str]:
        """Names of the folders directly below `folder` at a commit, sorted."""
        out = run_git(
            "ls-tree", "-z", "-d", "--name-only", sha, f"{folder.rstrip('/')}/", cwd=self.path(full_name)
        )
        return sorted(name.rsplit("/", 1)[-1] for name in out.decode("utf-8", "replace").split("\0") if name)

    def read_text(self, full_name: str, sha: str, path: str, *, limit: int = 256 * 1024) -> str | None:
        """A text file at a commit (cut at `limit` bytes), or None when it is not there."""
        try:
            out = run_git("cat-file", "blob", f"{sha}:{path}", cwd=self.path(full_name))
        except GitError:
            return None
        return out[:limit].decode("utf-8", "replace").replace("\0", "\ufffd")  # which Postgres cannot keep

    def export(self, full_name: str, sha: str, subpath: str, destination: Path) -> None:
        """Write the files below `subpath` at a commit into `destination` (created). Links that leave it are refused.

        Raises NotFound when the commit has no such folder.
        """
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
            try:
                run_git(
                    "archive",
                    "--format=tar",
                    f"--output={archive.name}",
                    f"{sha}:{subpath.strip('/')}",
                    cwd=self.path(full_name),
                )
            except GitError as error:
                raise NotFound(
                    f"{subpath} is not in repository {full_name} at commit {sha[:8]} ({error.message})"
                ) from None
            with tarfile.open(archive.name) as tar:
                if sum(member.size for member in tar) > MAX_EXPORT_BYTES:
                    raise InvalidInput(
                        f"{subpath} at commit {sha[:8]} is larger than {MAX_EXPORT_BYTES // 2**20} MiB"
                    )
                try:
                    tar.extractall(destination, filter="data")
                except tarfile.FilterError as error:
                    raise InvalidInput(
                        f"{subpath} at commit {sha[:8]} holds an unsafe file: {error}"
                    ) from None
