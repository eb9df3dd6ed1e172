"""Asking the user, and refusing to guess when nobody can answer."""

from dataclasses import dataclass, field
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import notice
from osmosis_ai.cli.output.mode import Mode, interactive, mode
from osmosis_ai.cli.output.visible import visible_line


@dataclass(frozen=True, slots=True)
class Question:
    """A confirmation: the prompt, what it is about, and what to bear in mind."""

    prompt: str
    summary: dict[str, str]
    default: bool = False
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def confirmed(question: Question, *, yes: bool) -> bool:
    """Whether to go on: ``--yes``, or the user's answer.

    Raises:
        CLIError: nobody can answer (``INTERACTIVE_REQUIRED``); details repeat the question.
    """
    if yes:
        return True
    if interactive():
        import click

        _show(question)
        return click.confirm(visible_line(question.prompt), default=question.default, err=True)
    if mode() is Mode.PLAIN:
        notice(f"Confirmation required: {question.prompt}")
        _show(question)
    details: dict[str, Any] = {"prompt": question.prompt, "summary": question.summary}
    if question.notes:
        details["notes"] = question.notes
    if question.warnings:
        details["warnings"] = question.warnings
    raise CLIError(
        "Use --yes to confirm in non-interactive mode.", code="INTERACTIVE_REQUIRED", details=details
    )


def hidden_input(prompt: str) -> str | None:
    """A value that is typed without being shown; None when the user breaks off."""
    import click

    try:
        value: str = click.prompt(prompt, hide_input=True, default="", show_default=False, err=True)
    except click.Abort:
        return None
    return value


def _show(question: Question) -> None:
    for label, value in question.summary.items():
        notice(f"  {label}: {value}")
    for heading, lines in (("Notes:", question.notes), ("Warnings:", question.warnings)):
        if lines:
            notice(heading)
            for line in lines:
                notice(f"  - {line}")
