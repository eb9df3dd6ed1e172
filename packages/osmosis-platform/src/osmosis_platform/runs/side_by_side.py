"""Several runs of one kind beside each other: which ones an address names, and where their settings differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.errors import InvalidInput
from osmosis_platform.runs import pages
from osmosis_platform.runs.facts import RunFacts, with_facts
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.service import Kind, find_run
from osmosis_platform.web.viewer import Viewer

MAX_RUNS = 6
OFFERED = 50
LETTERS = "ABCDEF"


def named_runs(session: Session, workspace_id: str, kind: Kind, names: Sequence[str]) -> list[Run]:
    """The runs of an address, each once, in its order. Raises NotFound, and InvalidInput for more than `MAX_RUNS`."""
    found: dict[str, Run] = {}
    for name in names:
        run = find_run(session, workspace_id, kind, name)
        found[run.id] = run
    if len(found) > MAX_RUNS:
        raise InvalidInput(
            f"At most {MAX_RUNS} runs can be compared at once; {len(found)} were chosen.", field="run"
        )
    return list(found.values())


def page_data(
    session: Session, viewer: Viewer, kind: Kind, names: Sequence[str], **query: str
) -> dict[str, Any]:
    """What pages of either kind show of their runs. `query` is what else the address holds."""
    found = named_runs(session, viewer.workspace_id, kind, names)
    facts = with_facts(session, found)
    path = _path(viewer, kind)
    return {
        "runs": [
            {
                **pages.run_detail(one, viewer.workspace),
                "letter": letter,
                "first": _address(path, [one.run, *(run for run in found if run is not one.run)], query),
                "without": _address(path, [run for run in found if run is not one.run], query),
            }
            for one, letter in zip(facts, LETTERS, strict=False)
        ],
        "settings": differing_settings(facts),
        "offered": offered_runs(session, viewer.workspace_id, kind, found),
        "query": _address("", found, query).removeprefix("?") + "&",
    }


def drawn(viewer: Viewer, run_id: str, name: str, letter: str) -> dict[str, str]:
    """A training for charts to draw: `url` answers with its points."""
    url = f"/{viewer.workspace}/training/{run_id}?part=charts"
    return {"id": run_id, "name": name, "letter": letter, "url": url}


def chrome(viewer: Viewer, kind: Kind) -> dict[str, Any]:
    """What only the page needs."""
    list_path = f"/{viewer.workspace}/{pages.ROOM[kind]}"
    return {"path": _path(viewer, kind), "list_path": list_path, "max_runs": MAX_RUNS}


def _path(viewer: Viewer, kind: Kind) -> str:
    return f"/{viewer.workspace}/compare/{pages.ROOM[kind]}"


def _address(path: str, runs: Sequence[Run], query: dict[str, str]) -> str:
    return f"{path}?{urlencode([*(('run', run.id) for run in runs), *query.items()])}"


def offered_runs(
    session: Session, workspace_id: str, kind: Kind, chosen: Sequence[Run]
) -> list[dict[str, str]]:
    """Recent runs that could be added: those of the first run's dataset, when there is one."""
    query = select(Run.id, Run.name).where(Run.workspace_id == workspace_id, Run.kind == kind)
    query = query.where(Run.id.not_in([run.id for run in chosen]))
    if chosen and chosen[0].dataset_id is not None:
        query = query.where(Run.dataset_id == chosen[0].dataset_id)
    newest = query.order_by(Run.created_at.desc()).limit(OFFERED)
    return [{"id": run_id, "name": name} for run_id, name in session.execute(newest)]


def differing_settings(facts: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """The settings that are not the same in all runs: `name`, and `values` in the order of the runs."""
    flat = [_flat(run) for run in facts]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = [{"name": name, "values": [settings.get(name) for settings in flat]} for name in names]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"])]


def _flat(facts: RunFacts) -> dict[str, Any]:
    run = facts.run
    head = {
        "model": run.model_path,
        "rollout": run.rollout_name,
        "entrypoint": run.entrypoint,
        "commit": run.commit_sha[:12],
        "dataset": facts.dataset_name,
    }
    sections = {
        f"{section}.{key}": value
        for section, values in run.config.items()
        if isinstance(values, dict) and section != "experiment"
        for key, value in values.items()
        if value is not None
    }
    return {**head, **sections, **{f"env {key}": value for key, value in run.env.items()}}
