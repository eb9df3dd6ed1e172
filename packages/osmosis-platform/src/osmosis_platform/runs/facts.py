"""Names around runs (creator, dataset), loaded for a whole page at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run with the names that belong to it."""

    run: Run
    creator_name: str | None
    creator_email: str | None
    dataset_name: str | None

    def times(self) -> dict[str, str | None]:
        """`created_at`, `started_at`, `completed_at` on the wire."""
        run = self.run
        return {
            name: None if moment is None else moment.isoformat()
            for name, moment in (
                ("created_at", run.created_at),
                ("started_at", run.started_at),
                ("completed_at", run.completed_at),
            )
        }

    def head(self, platform_url: str) -> dict[str, Any]:
        """What lists and details of every kind of run begin with."""
        run = self.run
        return {
            "id": run.id,
            "name": run.name,
            "status": run.status,
            **self.times(),
            "creator_name": self.creator_name,
            "creator_email": self.creator_email,
            "platform_url": platform_url,
        }

    def source(self) -> dict[str, Any]:
        """The code and environment of a run, as details show them; secrets only by name and scope."""
        run = self.run
        return {
            "entrypoint": run.entrypoint,
            "branch": run.branch,
            "commit_sha": run.commit_sha,
            "env_config": run.env,
            "resolved_secret_scopes": run.secret_scopes,
            "is_internal_user": False,
        }


def with_facts(session: Session, runs: Sequence[Run]) -> list[RunFacts]:
    """The runs with their names, in the same order."""
    people = {
        user.id: user
        for user in session.scalars(select(User).where(User.id.in_({run.creator_id for run in runs})))
    }
    wanted = {run.dataset_id for run in runs if run.dataset_id is not None}
    datasets: dict[str, str] = {
        row.id: row.name
        for row in session.execute(select(Dataset.id, Dataset.name).where(Dataset.id.in_(wanted)))
    }
    found = []
    for run in runs:
        person = people.get(run.creator_id)
        found.append(
            RunFacts(
                run,
                person.name if person else None,
                person.email if person else None,
                datasets.get(run.dataset_id or "") or (run.local_run or {}).get("dataset_name"),
            )
        )
    return found
