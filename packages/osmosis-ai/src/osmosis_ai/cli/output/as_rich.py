"""Rich mode: tables and colours for people; lines instead of tables where the terminal is narrow."""

import os
import shutil
import sys

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from osmosis_ai.cli.output.as_text import operation_message
from osmosis_ai.cli.output.results import (
    DetailResult,
    Item,
    ListResult,
    OperationResult,
    Result,
    SectionedResult,
)
from osmosis_ai.cli.output.visible import visible

_FILE_WIDTH = 200
_NARROW = 60
_LONGEST_WORD = 24  # longer ones (addresses, hashes) may break
_CELL_PADDING = 3  # two of the cell, one of the line between columns
_STATUS_STYLES = {
    "success": "green",
    "noop": "dim",
    "no_update": "dim",
    "cancelled": "dim",
    "partial": "yellow",
    "failed": "red",
}


def print_result(result: Result) -> None:
    """Print a result on standard output. Cells are text, never markup and never control characters."""
    console = Console(file=sys.stdout, width=_width(), highlight=False)
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


def _width() -> int:
    """Columns of the terminal. A file or a pipe has none; the usual guess of 80 would break words in tables."""
    given = os.environ.get("COLUMNS", "")
    known = sys.stdout.isatty() or (
        given.isdecimal() and int(given) > 0
    )  # 0 is what some wrappers set without a terminal
    return shutil.get_terminal_size().columns if known else _FILE_WIDTH


def _text(content: str, style: str = "") -> Text:
    return Text(visible(content), style=style)


def _list(console: Console, page: ListResult) -> None:
    items = page.items if page.items_for_people is None else page.items_for_people
    if _too_narrow(console.width, page, items):
        _items(console, page, items)
    else:
        _table(console, page, items)
    if not items and page.when_empty:
        _lines(console, [page.when_empty])
    _lines(console, page.hints)
    if items:
        _lines(console, page.next_text)
    if page.has_more:
        total = f" of {page.total_count}" if page.total_count > len(items) else ""
        _lines(console, [f"Showing {len(items)}{total}. {page.go_on}"])


def _table(console: Console, page: ListResult, items: list[Item]) -> None:
    table = Table(
        title=_text(page.title, "bold") if page.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in page.columns:
        table.add_column(_text(column.title), overflow="fold")
    for item in items:
        table.add_row(*(_text(column.cell(item)) for column in page.columns))
    console.print(table)


def _items(console: Console, page: ListResult, items: list[Item]) -> None:
    if page.title:
        console.print(_text(page.title, "bold"))
    for item in items:
        console.print()
        for column in page.columns:
            console.print(_label_and_value(column.title, column.cell(item)))
    if items:
        console.print()


def _label_and_value(label: str, value: str) -> Text:
    return Text.assemble((f"{visible(label)}: ", "dim"), visible(value))


def _too_narrow(width: int, page: ListResult, items: list[Item]) -> bool:
    """Whether a table of this width would have to break words."""
    if width < _NARROW:
        return True
    needed = 1
    for column in page.columns:
        words = column.title.split() + [word for item in items for word in column.cell(item).split()]
        needed += min(_LONGEST_WORD, max((len(word) for word in words), default=0)) + _CELL_PADDING
    return needed > width


def _detail(console: Console, result: DetailResult) -> None:
    for part in detail_parts(result, console.width):
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    for page in result.tables:
        console.print()
        _list(console, page)
    hints = result.hints + result.next_text
    if hints:
        console.print()
    _lines(console, hints)


def detail_parts(result: DetailResult, width: int) -> list[RenderableType]:
    """Title, rows and blocks of a detail."""
    parts: list[RenderableType] = [_text(result.title, "bold")] if result.title else []
    if width < _NARROW:
        parts += [_label_and_value(label, value) for label, value in result.rows]
    else:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for label, value in result.rows:
            table.add_row(_text(label), _text(value))
        parts.append(table)
    for block in result.blocks:
        parts += [Text(), *([_text(block.title, "bold")] if block.title else [])]
        indent = "  " if block.title else ""
        parts += [Text(indent + visible(line), no_wrap=width >= _NARROW) for line in block.lines]
    return parts


def _operation(console: Console, result: OperationResult) -> None:
    console.print(
        _text(operation_message(result), _STATUS_STYLES.get(result.status, "")),
        soft_wrap=console.width >= _NARROW,
    )
    for line in result.next_text:
        console.print(_text(line), soft_wrap=True)


def _lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(_text(line, "dim"), soft_wrap=True)
