"""Lists and logs, page by page."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.errors import CLIError

if TYPE_CHECKING:
    from osmosis_ai.platform.api.client import PlatformClient

DEFAULT_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Page:
    """Things of one or of all pages; ``first`` is the first answer, for keys beside the list."""

    items: list[dict[str, Any]]
    total_count: int
    has_more: bool
    next_offset: int | None
    first: dict[str, Any]


def check_limit(limit: int, everything: bool) -> None:
    """Refuse contradicting options.

    Raises:
        CLIError: ``--all`` and another limit than the default.
    """
    if everything and limit != DEFAULT_LIMIT:
        raise CLIError("--all and --limit are mutually exclusive.")


def fetch(
    client: "PlatformClient",
    path: str,
    key: str,
    *,
    limit: int,
    everything: bool,
    params: dict[str, Any] | None = None,
) -> Page:
    """The first page, or with ``everything`` all pages joined."""
    if not everything:
        answer = client.get(path, {**(params or {}), "limit": limit, "offset": 0})
        items = answer.get(key, [])
        return Page(
            items,
            answer.get("total_count") or 0,
            bool(answer.get("has_more")),
            answer.get("next_offset"),
            answer,
        )
    answers = list(client.pages(path, key, params))
    items = [item for answer in answers for item in answer.get(key, [])]
    return Page(items, answers[0].get("total_count") or len(items), False, None, answers[0])
