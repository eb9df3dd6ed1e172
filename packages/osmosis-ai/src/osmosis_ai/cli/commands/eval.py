"""``osmosis eval``."""

from typing import Any

import click

from osmosis_ai.cli.options import CONFIG, OVERWRITE, SECRETS_FILE, WATCH, YES, log_page, name, output, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group


@click.group("eval", cls=Group)
def app() -> None:
    """Submit and follow evaluation runs."""


@app.command("submit")
@CONFIG
@SECRETS_FILE
@YES
def submit(config_path: str, secrets_file: str | None, yes: bool) -> Result:
    """Submit an evaluation run from a file below configs/eval/."""
    from osmosis_ai.cli.submit.command import submit_run

    return submit_run("eval", config_path, yes=yes, secrets_file=secrets_file)


@app.command("run")
@CONFIG
@click.option("--name", default=None, help="Name of the run; with the name of an earlier one it goes on.")
@output("Folder for runs.  [default: .osmosis/evals]")
@click.option("--dataset-file", metavar="FILE", help="Rows from this file instead of the platform's dataset.")
@click.option(
    "--rows", metavar="ROWS", help="Rows to take, such as 3,7,10-20, instead of the config's limit."
)
@click.option("--model-url", metavar="URL", help="An OpenAI-compatible server for the model, ending in /v1.")
@SECRETS_FILE
@click.option("--fresh", is_flag=True, help="Put an earlier run of the name aside and begin again.")
@click.option("--retry-failed", is_flag=True, help="Run failed attempts of an earlier run again.")
@click.option(
    "--max-in-flight", type=click.IntRange(1), help="Attempts at a time, instead of the config's batch_size."
)
@click.option("--rollout-port", type=click.IntRange(1, 65535), help="Port of the rollout server.")
@click.option("--verbose", is_flag=True, help="Show the log while it runs.")
@YES
def run(**options: Any) -> Result:
    """Evaluate on this machine: the same runner and results, without the platform."""
    from osmosis_ai.cli.evaluation.local import LocalOptions, run_locally

    return run_locally(LocalOptions(**options))


@app.command("list")
@paged
def list_(limit: int, everything: bool) -> Result:
    """List the evaluation runs."""
    from osmosis_ai.cli.evaluation.show import list_runs

    return list_runs(limit, everything)


@app.command("info")
@name()
@output("Folder of the run's output; metrics.json is written there.")
@WATCH
def info(name: str, output: str | None, follow: bool) -> Result:
    """Show a run, its results and metrics."""
    from osmosis_ai.cli.evaluation.info import run_info

    return run_info(name, output, follow=follow)


@app.command("logs")
@name()
@log_page
def logs(name: str, limit: int, cursor: str | None) -> Result:
    """Show the newest log entries of a run, in order of time."""
    from osmosis_ai.cli.logs import show_logs

    return show_logs("eval", name, limit, cursor)


@app.command("download")
@name()
@click.option(
    "--type",
    "types",
    default="metrics,trajectories",
    show_default=True,
    help="Comma-separated: metrics, trajectories, artifacts, logs; or all.",
)
@click.option("--rows", default=None, metavar="ROWS", help="Rows to include, such as 3,7,10-20.")
@output("Folder to write into.")
@OVERWRITE
@YES
def download(
    name: str, types: str, rows: str | None, output: str | None, overwrite: bool, yes: bool
) -> Result:
    """Download metrics, trajectories, artifacts and logs of a run."""
    from osmosis_ai.cli.downloads.command import download_outputs

    return download_outputs("eval", name, types, rows, output, overwrite=overwrite, yes=yes)


@app.command("retry")
@name()
@SECRETS_FILE
@YES
def retry(name: str, secrets_file: str | None, yes: bool) -> Result:
    """Run the failed attempts of a run again; finished ones stay."""
    from osmosis_ai.cli.evaluation.retry import retry_run

    return retry_run(name, secrets_file, yes=yes)


@app.command("stop")
@name()
@YES
def stop(name: str, yes: bool) -> Result:
    """Stop a run."""
    from osmosis_ai.cli.stop import stop_run

    return stop_run("eval", name, yes=yes)


@app.command("rubric")
@click.option(
    "-d", "--data", required=True, metavar="FILE", help="Conversations or texts, one JSON object a line."
)
@click.option("-r", "--rubric", required=True, metavar="TEXT", help="The rubric, or @FILE.")
@click.option("--model", required=True, metavar="MODEL", help="The judge, such as openai/gpt-5-mini.")
@click.option(
    "-n", "--number", type=int, default=1, show_default=True, help="How often each record is judged."
)
@output("File or folder for the report as JSON.")
@click.option("--api-key", metavar="KEY", help="API key; better set the provider's environment variable.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Limit of one request.  [default: 30 to 60]")
@click.option("--score-min", type=float, default=0.0, show_default=True, help="Lowest score.")
@click.option("--score-max", type=float, default=1.0, show_default=True, help="Highest score.")
def rubric(output: str | None, **options: Any) -> Result:
    """Let a language model score texts against a rubric. Runs here; needs no platform."""
    from osmosis_ai.extras import extra

    with extra("rubric"):
        from osmosis_ai.eval.rubric.cli import RubricCommand

    return RubricCommand().run(output_path=output, **options)


@app.command("upload")
@name("name_or_dir", "NAME_OR_DIR")
@click.option("--replace", is_flag=True, help="Replace what this evaluation uploaded before.")
def upload(name_or_dir: str, replace: bool) -> Result:
    """Upload a complete local evaluation, by the name of its run or by folder."""
    from osmosis_ai.cli.uploads.command import upload_run

    return upload_run(name_or_dir, replace=replace)
