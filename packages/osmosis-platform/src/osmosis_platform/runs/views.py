"""Pages of evaluation and training runs. Both kinds share one list and one page; what differs is told by `run.kind`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.convertors import Convertor, register_url_convertor

from osmosis_platform.errors import NotFound
from osmosis_platform.http.logs import logs_page
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs import pages, service
from osmosis_platform.runs.facts import with_facts
from osmosis_platform.runs.models import TERMINAL, Run, RunAttempt
from osmosis_platform.web.pages import POLLING_ENDS, environment, render
from osmosis_platform.web.viewer import Csrf, ViewerDep, page_at

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
LOG_LINES = 200
ATTEMPTS = 50


@router.get("/{workspace}/{room:room}")
def runs_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    room: Room,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """All runs of one kind, newest first."""
    page = page_at(offset)
    with platform.database.read() as session:
        found, total = service.list_runs(session, viewer.workspace_id, KIND[room], page)
        rows = [
            pages.run_row(f.run, viewer.workspace, f.dataset_name, f.creator_name)
            for f in with_facts(session, found)
        ]
    data = {
        "title": TITLE[room],
        "runs": rows,
        "page": {"limit": page.limit, "offset": page.offset, "total": total},
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
    part: Literal["live", "log", "charts"] | None = None,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """One run. `part=live` and `part=log` are what changes while it runs; `part=charts` the points of its charts."""
    with platform.database.read() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], name_or_id)
        if part == "charts":
            series = [
                {
                    "key": key,
                    "title": service.title(key),
                    "points": [[step, value] for step, value, _ in points],
                }
                for key, points in sorted(service.metric_points(session, run.id).items(), key=_chart_order)
            ]
            return JSONResponse({"series": series, "final": run.status in TERMINAL})
        data: dict[str, Any] = {
            "run": pages.run_detail(with_facts(session, [run])[0], viewer.workspace),
            "checkpoints": pages.checkpoints(session, run) if room == "training" else [],
            "logs": logs_page(session, run.id, LOG_LINES)["logs"],
        }
        if part is not None:
            template = "parts/live.html" if part == "live" else "parts/run_log.html"
            html = environment().get_template(template).render(**data, viewer=viewer)
            return HTMLResponse(html, status_code=POLLING_ENDS if run.status in TERMINAL else 200)
        data["attempts"], data["attempts_page"] = None, None
        if room == "evaluation":
            data["attempts"], total = pages.attempts(session, run, ATTEMPTS, offset)
            data["attempts_page"] = {"limit": ATTEMPTS, "offset": offset, "total": total}
    return render(
        request,
        "run.html",
        data,
        viewer=viewer,
        room=room,
        list_path=f"/{viewer.workspace}/{room}",
        list_title=TITLE[room],
    )


def _chart_order(item: tuple[str, Any]) -> tuple[int, str]:
    first = ("rollout/raw_reward", "eval/validation/reward", "train/entropy_loss", "train/loss")
    return (first.index(item[0]) if item[0] in first else len(first), item[0])


@router.post("/{workspace}/{room:room}/{name_or_id}/stop", dependencies=[Csrf])
def stop_run(platform: PlatformDep, viewer: ViewerDep, room: Room, name_or_id: str) -> Response:
    """Ask a run to stop."""
    with platform.database.write() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], name_or_id)
        if run.status not in TERMINAL:
            service.request_stop(session, platform, run)
    return RedirectResponse(f"/{viewer.workspace}/{room}/{run.id}", status_code=303)


@router.get("/{workspace}/evaluation/{name_or_id}/attempts/{row_index}/{run_index}")
def attempt_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name_or_id: str,
    row_index: int,
    run_index: int,
) -> Response:
    """One attempt: its trajectory and artifacts."""
    with platform.database.read() as session:
        run: Run = service.find_run(session, viewer.workspace_id, "eval", name_or_id)
        attempt = session.get(RunAttempt, (run.id, row_index, run_index))
        if attempt is None:
            raise NotFound(f"Run {run.name} has no finished attempt {run_index} of row {row_index}.")
        steps = (
            pages.trajectory_steps(platform.blobs, attempt.trajectory_sha256)
            if attempt.trajectory_sha256
            else []
        )
        data = {
            "run_name": run.name,
            "run_path": f"/{viewer.workspace}/evaluation/{run.id}",
            "row_index": row_index,
            "run_index": run_index,
            "reward": attempt.reward,
            "steps": steps,
            "artifacts": pages.artifact_links(session, platform.urls, attempt),
        }
    return render(request, "attempt.html", data, viewer=viewer, room="evaluation")
