"""`/api/cli/benchmarks` and `/api/cli/benchmark-runs`, answered for a workspace without benchmarks.

This platform runs no benchmark suites: the catalogue is empty, so there is nothing to submit and no run to find. Whoever asks is told
so in the words of the API, and lists are empty pages.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from osmosis_platform.benchmarks.wire import SubmitBenchmark
from osmosis_platform.errors import NotFound
from osmosis_platform.http.downloads import DownloadBody
from osmosis_platform.http.logs import LogQuery
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import Scope

catalogue = APIRouter(prefix="/benchmarks")
runs = APIRouter(prefix="/benchmark-runs")


@catalogue.get("")
def list_benchmarks(scope: Scope, page: PageQuery) -> dict[str, Any]:
    """A page of the catalogue, which has no entries."""
    return page.body("benchmarks", [], 0)


@catalogue.get("/{name_or_id}")
def get_benchmark(name_or_id: str, scope: Scope) -> dict[str, Any]:
    """One benchmark by key, name or id."""
    raise _no_benchmark(name_or_id)


@runs.post("")
def submit(body: SubmitBenchmark, scope: Scope) -> dict[str, Any]:
    """Start a benchmark run; the body is checked completely before the benchmark is looked for."""
    raise _no_benchmark(body.experiment_config.benchmark)


@runs.get("")
def list_runs(scope: Scope, page: PageQuery, benchmark: str | None = None) -> dict[str, Any]:
    """A page of benchmark runs, of which there are none."""
    return page.body("benchmark_runs", [], 0)


@runs.get("/{name_or_id}")
def get_run(name_or_id: str, scope: Scope) -> dict[str, Any]:
    """One benchmark run by name or id."""
    raise _no_run(name_or_id)


@runs.get("/{name_or_id}/logs")
def get_logs(name_or_id: str, scope: Scope, window: LogQuery) -> dict[str, Any]:
    """A page of a run's log."""
    raise _no_run(name_or_id)


@runs.get("/{name_or_id}/outputs/manifest")
def get_manifest(name_or_id: str, scope: Scope, types: str | None = None) -> dict[str, Any]:
    """The downloadable files of a run."""
    raise _no_run(name_or_id)


@runs.post("/{name_or_id}/outputs/download-urls")
def post_download_urls(name_or_id: str, body: DownloadBody, scope: Scope) -> dict[str, Any]:
    """Signed addresses of files of a run."""
    raise _no_run(name_or_id)


@runs.post("/{name_or_id}/stop")
def stop(name_or_id: str, scope: Scope) -> dict[str, Any]:
    """Ask a run to stop."""
    raise _no_run(name_or_id)


router = APIRouter(prefix="/api/cli", tags=["benchmarks"])
router.include_router(catalogue)
router.include_router(runs)


def _no_benchmark(name: str) -> NotFound:
    return NotFound(
        f"Benchmark not found: {name}. This platform has no benchmarks; evaluate rollouts with `osmosis eval submit`.",
        code="BENCHMARK_NOT_FOUND",
    )


def _no_run(name: str) -> NotFound:
    return NotFound(
        f"Benchmark run not found: {name}. This platform has no benchmarks, so there are no runs of any.",
        code="BENCHMARK_RUN_NOT_FOUND",
    )
