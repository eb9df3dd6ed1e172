"""Plain mode: lines for shells, without headers, colours or hints about paging."""

from osmosis_ai.cli.output.results import DetailResult, ListResult, OperationResult, Result, SectionedResult
from osmosis_ai.cli.output.visible import visible, visible_line

_BREAKS = str.maketrans({"\t": " ", "\n": " ", "\r": " "})


def result_lines(result: Result) -> list[str]:
    """The lines of a result; a value of several lines is one entry with newlines."""
    if isinstance(result, ListResult):
        return list_lines(result)  # TABs between the cells stay
    if isinstance(result, SectionedResult):
        return [
            line
            for section in result.sections
            for line in (f"{section.page.title}:", *list_lines(section.page))
        ]
    if isinstance(result, DetailResult):
        lines = [f"{label}: {value}" for label, value in result.rows]
        for block in result.blocks:
            lines += [*([f"{block.title}:"] if block.title else []), *block.lines]
        tables = [line for page in result.tables for line in (f"{page.title}:", *list_lines(page))]
        return [*map(visible, lines), *tables, *map(visible, result.hints)]
    return [visible(line) for line in (operation_message(result), *result.next_text)]


def list_lines(page: ListResult) -> list[str]:
    """One line per item, cells joined by TAB; breaks inside a cell become spaces."""
    items = page.items if page.items_for_people is None else page.items_for_people
    return [
        "\t".join(visible_line(column.cell(item).translate(_BREAKS)) for column in page.columns)
        for item in items
    ]


def operation_message(result: OperationResult) -> str:
    """The message, or what was done and how it ended."""
    return result.message if result.message is not None else f"{result.operation}: {result.status}"
