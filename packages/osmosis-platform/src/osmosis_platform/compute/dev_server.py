"""Runs a development server: from a leased job, as long as it is wanted, in the sandbox of every rollout server."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from osmosis_ai.environments.build import BuildOptions
from osmosis_ai.rollout.utils.remove_tree import remove_tree
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.compute.rollout_server import Place, RolloutServer, check_entrypoint
from osmosis_platform.compute.run_log import RunLog
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.dev_servers.models import LIVE, DevServer
from osmosis_platform.dev_servers.service import end
from osmosis_platform.errors import PlatformError
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import GiveBack
from osmosis_platform.repositories.service import repository_of
from osmosis_platform.workspaces.models import Workspace

if TYPE_CHECKING:
    from osmosis_platform.compute.supervisor import Supervisor

_LOOK_SECONDS = 1.0


def run_dev_server(job: ClaimedJob, platform: Platform) -> None:
    """The handler of these jobs. Raises GiveBack when the platform stops: the next process starts the server again."""
    assert platform.supervisor is not None
    execution = _Execution(platform, platform.supervisor, job, job.payload["server_id"])
    if execution.begin():
        execution.execute()


def dev_server_given_up(session: Session, job: ClaimedJob, reason: str) -> None:
    """The job was given up for good: so is its server."""
    server = session.get(DevServer, job.payload["server_id"])
    if server is not None and server.status in LIVE:
        end(session, server, "failed", reason)


class _Execution:
    """One lease's work on one server."""

    def __init__(self, platform: Platform, supervisor: Supervisor, job: ClaimedJob, server_id: str) -> None:
        self.platform = platform
        self.supervisor = supervisor
        self.job = job
        self.server_id = server_id
        self.folder: Path = platform.settings.data_dir.resolve() / "dev-servers" / server_id

    def begin(self) -> bool:
        """Read what to run; False when the server has ended."""
        with self._write() as session:
            server = session.get(DevServer, self.server_id)
            if server is None or server.status not in LIVE:
                return False
            server.status, server.port = "pending", None
            self.server = server
            self.repository = repository_of(session, server.workspace_id).full_name
            self.from_index = session.get_one(Workspace, server.workspace_id).sdk_from_index
        return True

    def execute(self) -> None:
        """Run until it ends, is stopped, expires, or the platform stops."""
        run_log = RunLog(self.platform.database, self.server_id, redact=str)
        try:
            status, error = self._serve(run_log)
        finally:
            run_log.close()
            remove_tree(self.folder)
        with self._write() as session:
            server = session.get_one(DevServer, self.server_id)
            if server.status in LIVE:
                end(session, server, status, error)

    def _serve(self, run_log: RunLog) -> tuple[str, str | None]:
        try:
            place_folder = self._code()
            options = BuildOptions(
                index=self.platform.settings.package_index,
                sdk_from_index=self.from_index,
                cancelled=self._interrupted,
            )
            with self.supervisor.environments.use(place_folder, options, run_log.say) as environment:
                place = Place(
                    place_folder,
                    self.folder / "artifacts",
                    environment,
                    self.supervisor.sandbox,
                    self.platform.settings.rollout_memory_mb * 1024**2,
                )
                check_entrypoint(self.supervisor.spawner, place, self.server.entrypoint, {})
                return self._watch(place, run_log)
        except RunFailed as error:
            self._give_back_if_stopping()
            return ("stopped", None) if self.job.cancelled() else ("failed", error.message)
        except PlatformError as error:
            return "failed", error.message

    def _code(self) -> Path:
        remove_tree(self.folder)
        code = self.folder / "code"
        (self.folder / "artifacts").mkdir(parents=True)
        self.platform.git.export(self.repository, self.server.commit_sha, self.server.repository_path, code)
        return code

    def _watch(self, place: Place, run_log: RunLog) -> tuple[str, str | None]:
        process = RolloutServer(
            self.supervisor.spawner, place, self.server.entrypoint, {}, run_log, self._interrupted
        )
        try:
            process.start()
            self._give_back_if_stopping()
            with self._write() as session:
                server = session.get_one(DevServer, self.server_id)
                if server.status not in LIVE:
                    return "stopped", None
                server.status, server.port = "running", process.port
                server.started_at = server.started_at or utc_now()
            run_log.say("The server is ready.")
            while not self.job.wait_interrupted(_LOOK_SECONDS):
                if (status := process.ended()) is not None:
                    return "failed", f"it ended with status {status}. Its last lines:\n{process.last_lines()}"
                if self.server.expires_at is not None and self.server.expires_at <= utc_now():
                    return "expired", None
            self._give_back_if_stopping()
            return "stopped", None
        finally:
            process.stop()

    def _interrupted(self) -> bool:
        return self.job.cancelled() or self.job.lost() or self.job.stopping()

    def _give_back_if_stopping(self) -> None:
        if (self.job.stopping() or self.job.lost()) and not self.job.cancelled():
            raise GiveBack

    def _write(self) -> AbstractContextManager[Session]:
        return self.supervisor.guarded(self.job)
