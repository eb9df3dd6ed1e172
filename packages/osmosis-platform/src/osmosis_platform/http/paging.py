"""Pages of lists: `limit` and `offset` in, the collection and its counters out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

MAX_PAGE = 50
# Beyond what any list or database column holds.
LARGEST = 2**31


def _in_words(value: Any, check: ValidatorFunctionWrapHandler) -> int:
    try:
        place: int = check(value)
    except ValidationError:
        raise ValueError(
            f"This is no place in a list: it has to be a whole number from 0 to {LARGEST}."
        ) from None
    return place


Offset = Annotated[int, Query(ge=0, le=LARGEST), WrapValidator(_in_words)]


@dataclass(frozen=True, slots=True)
class Page:
    """A window of a list: `limit` 1 to 50, `offset` from 0."""

    limit: int
    offset: int

    def body(self, key: str, items: Sequence[Any], total: int) -> dict[str, Any]:
        """The answer: `items` under `key`, with `total_count`, `has_more` and `next_offset` (null on the last page)."""
        end = self.offset + len(items)
        more = bool(items) and end < total
        return {
            key: list(items),
            "total_count": total,
            "has_more": more,
            "next_offset": end if more else None,
        }


def page(
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    offset: Offset = 0,
) -> Page:
    """The page asked for by the query."""
    return Page(limit, offset)


PageQuery = Annotated[Page, Depends(page)]


def page_of[T](session: Session, query: Select[T], page: Page) -> tuple[list[T], int]:
    """The rows of one page of an ordered query over one entity, and how many the whole query has."""
    total = session.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0
    return list(session.scalars(query.limit(page.limit).offset(page.offset))), total
