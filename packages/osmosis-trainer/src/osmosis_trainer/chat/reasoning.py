"""Taking the reasoning off an answer before anything else is read: a tool call inside a thought is not a call."""

from __future__ import annotations

from dataclasses import dataclass

from osmosis_trainer.chat.template import THINK_MARKS
from osmosis_trainer.chat.tool_formats import held_suffix


@dataclass(frozen=True, slots=True)
class Split:
    """`reasoning` is None when there is no think block; `closed` is False while one is open."""

    reasoning: str | None
    rest: str
    closed: bool = True


def split_reasoning(text: str, already_open: bool, marks: tuple[str, str] = THINK_MARKS) -> Split:
    """Split a whole answer; `already_open` when the prompt ended with an opening think mark."""
    opening, closing = marks
    body = text.lstrip()
    if body.startswith(opening):
        body = body.removeprefix(opening)
    elif not already_open:
        return Split(None, text)
    reasoning, closed, rest = body.partition(closing)
    return Split(reasoning.strip(), rest.lstrip(), bool(closed))


def split_growing(text: str, already_open: bool, marks: tuple[str, str] = THINK_MARKS) -> Split:
    """Split the beginning of an answer, leaving out whatever its next token could turn into something else."""
    opening, closing = marks
    body = text.lstrip()
    if not already_open and len(body) < len(opening) and opening.startswith(body):
        return Split(None, "")
    split = split_reasoning(text, already_open, marks)
    if split.closed or split.reasoning is None:
        return split
    body = body.removeprefix(opening)
    if already_open and len(body) < len(opening) and opening.startswith(body):
        return Split("", "", False)
    sure = body[: len(body) - held_suffix(body, closing)]
    return Split(sure.strip(), "", False)
