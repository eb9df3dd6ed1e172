"""Rich mode: tables and colours for people."""

import os
import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from osmosis_ai.cli.output.as_text import operation_message
from osmosis_ai.cli.output.results import DetailResult, ListResult, OperationResult, Result, SectionedResult

_FILE_WIDTH = 200
_STATUS_STYLES = {
    "success": "green",
    "noop": "dim",
    "no_update": "dim",
    "cancelled": "dim",
    "partial": "yellow",
    "failed": "red",
}


def print_result(result: Result) -> None:
    """Print a result on standard output. Cells are text, never markup."""
    # A file or a pipe has no width; the usual guess of 80 columns would break words in tables.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False)
    match result:
        case ListResult():
            _list(console, result)
        case SectionedResult():
            for section in result.sections:
                _list(console, section.page)
            _lines(console, result.hints)
        case DetailResult():
            _detail(console, result)
        case OperationResult():
            _operation(console, result)


def _list(console: Console, page: ListResult) -> None:
    table = Table(
        title=Text(page.title, style="bold") if page.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in page.columns:
        table.add_column(Text(column.title), overflow="fold")
    items = page.items if page.items_for_people is None else page.items_for_people
    for item in items:
        table.add_row(*(Text(column.cell(item)) for column in page.columns))
    console.print(table)
    _lines(console, page.hints)
    if page.has_more:
        console.print(
            Text(f"Showing {len(items)} of {page.total_count}. Use --all to show all.", style="dim")
        )


def _detail(console: Console, result: DetailResult) -> None:
    if result.title:
        console.print(Text(result.title, style="bold"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in result.rows:
        table.add_row(Text(label), Text(value))
    console.print(table)
    for block in result.blocks:
        console.print()
        console.print(Text(block.title, style="bold"))
        for line in block.lines:
            console.print(Text(f"  {line}"), soft_wrap=True)
    if result.hints:
        console.print()
    _lines(console, result.hints)


def _operation(console: Console, result: OperationResult) -> None:
    console.print(
        Text(operation_message(result), style=_STATUS_STYLES.get(result.status, "")), soft_wrap=True
    )
    for line in result.next_text:
        console.print(Text(line), soft_wrap=True)


def _lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)
