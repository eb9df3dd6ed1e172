"""Pages of evaluation and training runs. Both kinds share one list and one page; what differs is told by `run.kind`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse
from pydantic import BeforeValidator
from sqlalchemy.orm import Session
from starlette.convertors import Convertor, register_url_convertor

from osmosis_platform.errors import NotFound
from osmosis_platform.http.paging import LARGEST, Offset
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs import (
    artifacts,
    attempt_list,
    charts,
    grading,
    listing,
    log_view,
    pages,
    samples,
    series,
    service,
    side_by_side,
    trajectories,
)
from osmosis_platform.runs.facts import with_facts
from osmosis_platform.runs.models import TERMINAL, Run, RunAttempt, RunSample
from osmosis_platform.runs.wire import Index
from osmosis_platform.web.pages import fragment, render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep, page_at

router = APIRouter(include_in_schema=False)

Room = Literal["evaluation", "training"]


class RoomConvertor(Convertor[str]):
    """Matches the two rooms of runs, so that other pages of a workspace keep their addresses."""

    regex = "evaluation|training"

    def convert(self, value: str) -> str:
        """As it is."""
        return value

    def to_string(self, value: str) -> str:
        """As it is."""
        return value


register_url_convertor("room", RoomConvertor())

KIND: dict[str, service.Kind] = {"evaluation": "eval", "training": "train"}
TITLE = {"evaluation": "Evaluation runs", "training": "Training runs"}
COMMAND = {
    "evaluation": "osmosis eval submit configs/eval/multiply-local-openai.toml",
    "training": "osmosis train submit configs/training/multiply-local-openai.toml",
}
ATTEMPTS = 50
PARTS = {
    "eval": ("actions", "summary", "results", "attempts"),
    "train": ("actions", "summary", "advice", "checkpoints", "metrics", "samples"),
}


def _empty_is_none(value: object) -> object:
    """A number field that was left empty."""
    return None if value == "" else value


@router.get("/{workspace}/{room:room}")
def runs_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    room: Room,
    offset: Offset = 0,
    q: Annotated[str, Query(max_length=200)] = "",
    status: Annotated[str, Query(max_length=40)] = "",
    rollout: Annotated[str, Query(max_length=500)] = "",
    model: Annotated[str, Query(max_length=500)] = "",
    dataset: Annotated[str, Query(max_length=500)] = "",
    sort: listing.Sort = "newest",
) -> Response:
    """The runs of one kind: `q` (part of a name), `status`, `rollout`, `model` and `dataset` choose, `sort` orders them."""
    page = page_at(offset)
    chosen = listing.RunFilter(q.strip(), status, rollout, model, dataset, sort)
    with platform.database.read() as session:
        found, total = listing.filtered_runs(session, viewer.workspace_id, KIND[room], chosen, page)
        offered = listing.choices(session, viewer.workspace_id, KIND[room])
        rows = [
            pages.run_row(f.run, viewer.workspace, f.dataset_name, f.creator_name)
            for f in with_facts(session, found)
        ]
    data = {
        "title": TITLE[room],
        "runs": rows,
        "page": {"limit": page.limit, "offset": page.offset, "total": total},
        "filter": {**asdict(chosen), "query": chosen.query()},
        "choices": {"status": list(listing.STATUSES), **offered},
    }
    return render(
        request,
        "runs.html",
        data,
        viewer=viewer,
        room=room,
        command=COMMAND[room],
        path=f"/{viewer.workspace}/{room}",
    )


@router.get("/{workspace}/{room:room}/{name_or_id}")
def run_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    room: Room,
    name_or_id: str,
    part: Literal["live", "charts"] | None = None,
    after: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    before: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
    status: attempt_list.AttemptStatus = "",
    reward: attempt_list.AttemptReward = "",
    error: Annotated[str, Query(max_length=200)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    row: Annotated[Index | None, BeforeValidator(_empty_is_none)] = None,
    sort: attempt_list.AttemptSort = "row",
    offset: Offset = 0,
    step: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
    key: Annotated[list[str], Query(max_length=charts.MAX_KEYS)] = [],  # noqa: B006 # FastAPI copies it
    first: Annotated[Index | None, BeforeValidator(_empty_is_none), Query(alias="from")] = None,
    last: Annotated[Index | None, BeforeValidator(_empty_is_none), Query(alias="to")] = None,
    overlay: Annotated[list[str], Query(alias="with", max_length=20)] = [],  # noqa: B006
) -> Response:
    """One run. `part=live` is what changed while it runs, with the log lines behind `after`; `part=charts` the points of its
    charts: of the metrics `key`, of the steps `from` to `to`. `with` draws other trainings into them. `before` shows older log lines; `status`, `reward`, `error`, `q`, `row`, `sort` and `offset` choose the attempts of an evaluation,
    `step` the trajectories of a training."""
    with platform.database.read() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], name_or_id)
        if part == "charts":
            drawn = charts.charts(session, run, key[: charts.MAX_KEYS], first, last)
            return JSONResponse(drawn, headers={"Cache-Control": "no-store"})
        chosen = attempt_list.AttemptFilter(status, reward, error, q.strip(), row, sort)
        data = _run_data(session, viewer, run, chosen, offset) | _samples(session, run, step)
        data["serves"] = platform.settings.serve_models
        if part == "live":
            lines = log_view.lines_after(session, run.id, after)
            return JSONResponse(_live(viewer, data, lines, after), headers={"Cache-Control": "no-store"})
        data["overlays"] = _overlays(session, viewer, run, overlay)
        data["offered"] = (
            side_by_side.offered_runs(session, viewer.workspace_id, "train", [run])
            if run.kind == "train"
            else []
        )
        data["logs"] = log_view.newest_lines(session, run.id, before)
        older = log_view.has_older(session, run.id, data["logs"])
    return render(
        request,
        "run.html",
        data,
        viewer=viewer,
        room=room,
        list_path=f"/{viewer.workspace}/{room}",
        list_title=TITLE[room],
        older=older,
        following=before is None,
    )


def _overlays(session: Session, viewer: Viewer, run: Run, names: list[str]) -> list[dict[str, str]]:
    """This training and those that are drawn into its charts."""
    if run.kind != "train":
        return []
    found = side_by_side.named_runs(session, viewer.workspace_id, "train", [run.id, *names])
    return [
        side_by_side.drawn(viewer, one.id, one.name, letter)
        for one, letter in zip(found, side_by_side.LETTERS, strict=False)
    ]


def _run_data(
    session: Session, viewer: Viewer, run: Run, chosen: attempt_list.AttemptFilter, offset: int
) -> dict[str, Any]:
    """Everything of a run's page but its log."""
    numbers = series.summaries(session, run.id) if run.kind == "train" else []
    numbers.sort(key=lambda metric: charts.chart_order(metric.key))
    data: dict[str, Any] = {
        "run": pages.run_detail(with_facts(session, [run])[0], viewer.workspace),
        "checkpoints": [],
        "metrics_version": f"{sum(n.count for n in numbers)} {sum(n.total for n in numbers):.12g}",
        "metrics": service.metric_summaries(numbers),
        "attempts": None,
        "attempts_page": None,
        "filter": None,
        "error_types": [],
        "histogram": [],
    }
    if run.kind == "train":
        data["checkpoints"] = pages.checkpoints(session, run)
    else:
        data["attempts"], total = attempt_list.attempts(session, run, chosen, ATTEMPTS, offset)
        data["attempts_page"] = {"limit": ATTEMPTS, "offset": offset, "total": total}
        data["filter"] = {**asdict(chosen), "query": chosen.query()}
        data["error_types"] = attempt_list.error_types(session, run)
        data["histogram"] = pages.reward_histogram(session, run)
    return data


def _samples(session: Session, run: Run, step: int | None) -> dict[str, Any]:
    """What a training shows besides its numbers: advice, and the trajectories of a step (the newest unless one was chosen)."""
    told = log_view.advice(session, run.id) if run.kind == "train" else []
    steps = samples.steps_with_samples(session, run) if run.kind == "train" else []
    chosen = step if step in steps else next(iter(steps), None)
    found = samples.samples_of(session, run, chosen) if chosen is not None else []
    return {"advice": told, "sample_steps": steps, "sample_step": chosen, "samples": found}


def _live(viewer: Viewer, data: dict[str, Any], lines: list[dict[str, Any]], after: int) -> dict[str, Any]:
    """The parts of the page as HTML by the id of their element, the new log lines, and whether there are `more`."""
    parts = {
        name: fragment(f"parts/{name}.html", **data, viewer=viewer) for name in PARTS[data["run"]["kind"]]
    }
    return {
        "status": data["run"]["status"],
        "final": data["run"]["final"],
        "more": len(lines) == log_view.SHOWN,
        "points": data["metrics_version"],
        "parts": parts,
        "lines": fragment("parts/log_lines.html", logs=lines, viewer=viewer),
        "sequence": lines[-1]["sequence"] if lines else after,
    }


@router.get("/{workspace}/training/{name_or_id}/metrics.csv")
def metrics_csv(platform: PlatformDep, viewer: ViewerDep, name_or_id: str) -> Response:
    """Every point of every metric as a table."""
    with platform.database.read() as session:
        run = service.find_run(session, viewer.workspace_id, "train", name_or_id)
    lines = charts.csv_lines(platform, run.id)
    name = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(run.name, safe='')}-metrics.csv"}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=name)


@router.post("/{workspace}/{room:room}/{name_or_id}/stop", dependencies=[Csrf])
def stop_run(platform: PlatformDep, viewer: ViewerDep, room: Room, name_or_id: str) -> Response:
    """Ask a run to stop."""
    with platform.database.write() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], name_or_id)
        if run.status not in TERMINAL:
            service.request_stop(session, platform, run, viewer.user)
    return RedirectResponse(f"/{viewer.workspace}/{room}/{run.id}", status_code=303)


@router.get("/{workspace}/evaluation/{name_or_id}/attempts/{row_index}/{run_index}")
def attempt_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name_or_id: str,
    row_index: Index,
    run_index: Index,
    offset: Offset = 0,
) -> Response:
    """One attempt: its trajectory from step `offset` on, and artifacts."""
    with platform.database.read() as session:
        run: Run = service.find_run(session, viewer.workspace_id, "eval", name_or_id)
        attempt = session.get(RunAttempt, (run.id, row_index, run_index))
        if attempt is None:
            raise NotFound(f"Run {run.name} has no finished attempt {run_index} of row {row_index}.")
        found = (
            trajectories.window(platform.blobs, attempt.trajectory_sha256, offset)
            if attempt.trajectory_sha256
            else trajectories.Window([], False, 0)
        )
        data = {
            "run_name": run.name,
            "run_path": f"/{viewer.workspace}/evaluation/{run.id}",
            **pages.attempt_row(attempt),
            "steps": [pages.shown_step(step) for step in found.steps],
            "steps_page": {
                "limit": trajectories.STEPS,
                "offset": offset,
                "total": found.total,
                "more": found.more,
            },
            **grading.measured(session, platform.blobs, run, row_index, found.facts),
            "artifacts": artifacts.artifact_links(session, platform.urls, attempt),
        }
    return render(request, "attempt.html", data, viewer=viewer, room="evaluation")


@router.get("/{workspace}/training/{name_or_id}/samples/{step}/{row_index}/{sample_index}")
def sample_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name_or_id: str,
    step: Index,
    row_index: Index,
    sample_index: Index,
    offset: Offset = 0,
) -> Response:
    """One training trajectory: its model calls, every sampled token with its log-probability, and artifacts."""
    with platform.database.read() as session:
        run: Run = service.find_run(session, viewer.workspace_id, "train", name_or_id)
        sample = session.get(RunSample, (run.id, step, row_index, sample_index))
        if sample is None:
            raise NotFound(
                f"Run {run.name} keeps no sample {sample_index} of row {row_index} of step {step}."
            )
        data = {
            "run_name": run.name,
            "run_path": f"/{viewer.workspace}/training/{run.id}",
            **samples.trajectory(platform.blobs, sample, offset),
            "artifacts": artifacts.artifact_links(session, platform.urls, sample),
        }
    return render(request, "sample.html", data, viewer=viewer, room="training")
