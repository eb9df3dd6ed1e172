"""``osmosis dataset``."""

import click

from osmosis_ai.cli.options import OVERWRITE, YES, log_page, name, not_blank, output, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group

FILE = click.argument("file", callback=not_blank)


@click.group("dataset", cls=Group)
def app() -> None:
    """Upload, inspect and download datasets."""


@app.command("upload")
@FILE
@OVERWRITE
@YES
def upload(file: str, overwrite: bool, yes: bool) -> Result:
    """Upload a CSV, JSONL or Parquet file."""
    from osmosis_ai.cli.datasets.upload import upload_dataset

    return upload_dataset(file, overwrite=overwrite, yes=yes)


@app.command("download")
@name()
@output("File or existing folder to write.")
@OVERWRITE
def download(name: str, output: str | None, overwrite: bool) -> Result:
    """Download a dataset file."""
    from osmosis_ai.cli.datasets.download import download_dataset

    return download_dataset(name, output, overwrite=overwrite)


@app.command("list")
@paged
def list_(limit: int, everything: bool) -> Result:
    """List the datasets."""
    from osmosis_ai.cli.datasets.show import list_datasets

    return list_datasets(limit, everything)


@app.command("info")
@name()
def info(name: str) -> Result:
    """Show a dataset and its processing."""
    from osmosis_ai.cli.datasets.show import dataset_info

    return dataset_info(name)


@app.command("preview")
@name()
@click.option("--rows", type=int, default=5, show_default=True, help="How many rows to show.")
def preview(name: str, rows: int) -> Result:
    """Show the first rows."""
    from osmosis_ai.cli.datasets.show import preview_dataset

    return preview_dataset(name, rows)


@app.command("validate")
@FILE
def validate(file: str) -> Result:
    """Check a file without uploading it."""
    from osmosis_ai.cli.datasets.checks import validate_dataset

    return validate_dataset(file)


@app.command("logs")
@name()
@log_page
def logs(name: str, limit: int, cursor: str | None) -> Result:
    """Show the newest log entries of a dataset, in order of time."""
    from osmosis_ai.cli.logs import show_logs

    return show_logs("dataset", name, limit, cursor)
