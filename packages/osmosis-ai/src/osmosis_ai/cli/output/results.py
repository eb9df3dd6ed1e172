"""What commands return. One result has everything for all three modes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a list for people: a title and how to get the cell from an item."""

    title: str
    cell: Callable[[Item], str]


@dataclass(frozen=True, slots=True)
class ListResult:
    """One page of things. ``extra`` holds further keys of the JSON object, never overriding the standard ones.

    For people: ``go_on`` says how to see the rest, ``when_empty`` what to do when there is nothing yet.
    """

    items: list[Item]
    columns: list[Column]
    total_count: int
    has_more: bool = False
    next_offset: int | None = None
    title: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)
    go_on: str = "Use --all to show all."
    when_empty: str = ""
    items_for_people: list[Item] | None = None
    next_text: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Section:
    """One list of a sectioned result; ``key`` is its JSON key."""

    key: str
    page: ListResult


@dataclass(frozen=True, slots=True)
class SectionedResult:
    """Several lists, each paged by itself."""

    sections: list[Section]
    extra: dict[str, Any] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Block:
    """Titled lines below the rows of a detail."""

    title: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class DetailResult:
    """One thing: ``data`` for programs; ``rows``, ``blocks`` and ``tables`` for people.

    ``next_text`` (in lists too) names useful commands; it is shown in terminals only. A block without a title stands by itself.
    """

    data: dict[str, Any]
    rows: list[tuple[str, str]]
    title: str = ""
    blocks: list[Block] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    tables: list[ListResult] = field(default_factory=list)
    next_text: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OperationResult:
    """Something was done. ``status``: success, failed, noop, cancelled, partial or no_update."""

    operation: str
    status: str = "success"
    resource: dict[str, Any] | None = None
    message: str | None = None
    next_steps: list[dict[str, Any]] = field(default_factory=list)
    next_text: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0, or 1 when the work is not complete."""
        return 1 if self.status in {"partial", "failed"} else 0


Result = ListResult | SectionedResult | DetailResult | OperationResult
