"""Listing things of the workspace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import Column, Item, ListResult
from osmosis_ai.cli.paging import Page, check_limit, fetch
from osmosis_ai.cli.workspace import open_workspace


@dataclass(frozen=True, slots=True)
class Listing:
    """A kind of thing that can be listed: where it comes from (``key`` names the list in an answer) and how it is shown."""

    path: str
    key: str
    title: str
    serialize: Callable[[Item], Item]
    columns: Sequence[Column]
    when_empty: str
    next_text: Sequence[str] = ()
    hints: Callable[[list[Item]], list[str]] = field(default=lambda _: [])

    def list(self, limit: int, everything: bool, params: dict[str, Any] | None = None) -> ListResult:
        """The first things, or all of them.

        Raises:
            CLIError: the options contradict each other, or this is no workspace directory.
            PlatformError: the platform could not be asked.
        """
        check_limit(limit, everything)
        workspace = open_workspace()
        with workspace.client as client, status(f"Fetching {self.title.lower()}..."):
            page = fetch(client, self.path, self.key, limit=limit, everything=everything, params=params)
        return self.result(page, workspace.context)

    def result(self, page: Page, extra: dict[str, Any]) -> ListResult:
        """A page as a result."""
        items = [self.serialize(item) for item in page.items]
        return ListResult(
            items,
            list(self.columns),
            page.total_count,
            page.has_more,
            page.next_offset,
            title=self.title,
            when_empty=self.when_empty,
            hints=self.hints(items),
            next_text=list(self.next_text),
            extra=extra,
        )
