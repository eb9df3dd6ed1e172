"""Evaluations beside each other; everything chosen is in the address."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from osmosis_platform.datasets.rows import prompts_of
from osmosis_platform.evaluation import comparison
from osmosis_platform.http.paging import Offset
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs import side_by_side
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep, page_at

router = APIRouter(include_in_schema=False)


@router.get("/{workspace}/compare/evaluation")
def compare_evaluations(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    run: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 # FastAPI copies it
    measure: comparison.Measure = "reward",
    show: comparison.Show = "changed",
    baseline: Annotated[str, Query(max_length=200)] = "",
    offset: Offset = 0,
) -> Response:
    """The runs `run` (names or ids) row by row, against `baseline` or else the first. `measure`: mean reward, or share of attempts that
    passed."""
    page = page_at(offset)
    run = [baseline, *run] if baseline else run
    with platform.database.read() as session:
        data = side_by_side.page_data(session, viewer, "eval", run, measure=measure, show=show)
        found = side_by_side.named_runs(session, viewer.workspace_id, "eval", run)
        paired = len(found) >= 2 and comparison.same_rows(session, found)
        rows, total = (
            comparison.rows(session, found, measure, show, page.limit, offset) if paired else ([], 0)
        )
        pairs = comparison.pairs(session, found, measure) if paired else []
        file = comparison.rows_file(session, platform.blobs, found) if rows else None
    prompts = prompts_of(file, [row["row_index"] for row in rows]) if file else {}
    data |= {
        "same_rows": paired,
        "pairs": [{**asdict(pair), "letter": letter} for pair, letter in zip(pairs, "BCDEF", strict=False)],
        "rows": [{**row, "prompt": prompts.get(row["row_index"])} for row in rows],
        "page": {"limit": page.limit, "offset": offset, "total": total},
        "measure": measure,
        "show": show,
    }
    chrome = side_by_side.chrome(viewer, "eval")
    return render(request, "compare_evaluations.html", data, viewer=viewer, room="evaluation", **chrome)
