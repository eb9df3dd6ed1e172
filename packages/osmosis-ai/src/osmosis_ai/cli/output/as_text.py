"""Plain mode: lines for shells, without headers, colours or hints about paging."""

from osmosis_ai.cli.output.results import DetailResult, ListResult, OperationResult, Result, SectionedResult

_BREAKS = str.maketrans({"\t": " ", "\n": " ", "\r": " "})


def result_lines(result: Result) -> list[str]:
    """The lines of a result."""
    match result:
        case ListResult():
            return list_lines(result)
        case SectionedResult():
            lines: list[str] = []
            for section in result.sections:
                lines += [f"{section.page.title}:", *list_lines(section.page)]
            return lines
        case DetailResult():
            lines = [f"{label}: {value}" for label, value in result.rows]
            for block in result.blocks:
                lines += [f"{block.title}:", *block.lines]
            return lines + result.hints
        case OperationResult():
            return [operation_message(result), *result.next_text]


def list_lines(page: ListResult) -> list[str]:
    """One line per item, cells joined by TAB; breaks inside a cell become spaces."""
    items = page.items if page.items_for_people is None else page.items_for_people
    return ["\t".join(column.cell(item).translate(_BREAKS) for column in page.columns) for item in items]


def operation_message(result: OperationResult) -> str:
    """The message, or what was done and how it ended."""
    return result.message if result.message is not None else f"{result.operation}: {result.status}"
