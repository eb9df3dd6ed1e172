"""``osmosis benchmark``."""

import click

from osmosis_ai.cli.options import CONFIG, OVERWRITE, YES, log_page, name, output, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group


@click.group("benchmark", cls=Group)
def app() -> None:
    """List benchmarks; submit and follow benchmark runs."""


@app.command("list")
@paged
def list_(limit: int, everything: bool) -> Result:
    """List the benchmarks of the workspace."""
    from osmosis_ai.cli.benchmarks.show import list_benchmarks

    return list_benchmarks(limit, everything)


@app.command("info")
@name("key", "KEY")
@paged
def info(key: str, limit: int, everything: bool) -> Result:
    """Show a benchmark, its leaderboard and runs."""
    from osmosis_ai.cli.benchmarks.show import benchmark_info

    return benchmark_info(key, limit, everything)


@app.command("submit")
@CONFIG
@YES
def submit(config_path: str, yes: bool) -> Result:
    """Submit a benchmark run from a file below configs/benchmark/."""
    from osmosis_ai.cli.benchmarks.submit import submit_benchmark

    return submit_benchmark(config_path, yes=yes)


@app.group("runs", cls=Group)
def runs() -> None:
    """Follow, stop and download benchmark runs."""


@runs.command("list")
@paged
def list_runs(limit: int, everything: bool) -> Result:
    """List the benchmark runs."""
    from osmosis_ai.cli.benchmarks.runs import list_runs

    return list_runs(limit, everything)


@runs.command("info")
@name()
def run_info(name: str) -> Result:
    """Show a run, its agents and their scores."""
    from osmosis_ai.cli.benchmarks.runs import run_info

    return run_info(name)


@runs.command("logs")
@name()
@log_page
def run_logs(name: str, limit: int, cursor: str | None) -> Result:
    """Show the newest log entries of a run, in order of time."""
    from osmosis_ai.cli.logs import show_logs

    return show_logs("benchmark", name, limit, cursor)


@runs.command("stop")
@name()
@YES
def stop(name: str, yes: bool) -> Result:
    """Stop a run."""
    from osmosis_ai.cli.stop import stop_run

    return stop_run("benchmark", name, yes=yes)


@runs.command("download")
@name()
@click.option(
    "--type",
    "types",
    default="summary,results",
    show_default=True,
    help="Comma-separated: summary, results, artifacts, logs; or all.",
)
@output("Folder to write into.")
@OVERWRITE
@YES
def download(name: str, types: str, output: str | None, overwrite: bool, yes: bool) -> Result:
    """Download summary, results, artifacts and logs of a run."""
    from osmosis_ai.cli.downloads.command import download_outputs

    return download_outputs("benchmark", name, types, None, output, overwrite=overwrite, yes=yes)
