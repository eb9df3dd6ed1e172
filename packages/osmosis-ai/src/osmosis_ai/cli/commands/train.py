"""``osmosis train``."""

import click

from osmosis_ai.cli.options import CONFIG, SECRETS_FILE, WATCH, YES, log_page, name, output, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group


@click.group("train", cls=Group)
def app() -> None:
    """Submit and follow training runs."""


@app.command("submit")
@CONFIG
@SECRETS_FILE
@YES
def submit(config_path: str, secrets_file: str | None, yes: bool) -> Result:
    """Submit a training run from a file below configs/training/."""
    from osmosis_ai.cli.submit.command import submit_run

    return submit_run("training", config_path, yes=yes, secrets_file=secrets_file)


@app.command("list")
@paged
def list_(limit: int, everything: bool) -> Result:
    """List the training runs."""
    from osmosis_ai.cli.training.show import list_runs

    return list_runs(limit, everything)


@app.command("info")
@name()
@output("File to write the metrics to.")
@WATCH
def info(name: str, output: str | None, follow: bool) -> Result:
    """Show a run, its checkpoints and metrics."""
    from osmosis_ai.cli.training.info import run_info

    return run_info(name, output, follow=follow)


@app.command("logs")
@name()
@log_page
def logs(name: str, limit: int, cursor: str | None) -> Result:
    """Show the newest log entries of a run, in order of time."""
    from osmosis_ai.cli.logs import show_logs

    return show_logs("training", name, limit, cursor)


@app.command("stop")
@name()
@YES
def stop(name: str, yes: bool) -> Result:
    """Stop a run."""
    from osmosis_ai.cli.stop import stop_run

    return stop_run("training", name, yes=yes)
