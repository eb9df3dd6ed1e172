"""Asking the user, and refusing to guess when nobody can answer."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import notice
from osmosis_ai.cli.output.mode import Mode, interactive, mode
from osmosis_ai.cli.output.visible import visible_line

_ANSWERS = {"": False, "y": True, "yes": True, "n": False, "no": False}


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
        _show(question)
        return _answer(
            f"{visible_line(question.prompt)} [{'Y/n' if question.default else 'y/N'}]: ", question.default
        )
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
    """A value that is typed without being shown; None when the user breaks off with Ctrl-C or Esc."""
    try:
        return _line(f"{prompt}: ", hidden=True)
    except (KeyboardInterrupt, EOFError):
        return None


def _answer(prompt: str, default: bool) -> bool:
    """Yes or no; Esc means no."""
    while True:
        try:
            typed = _line(prompt)
        except EOFError:
            raise KeyboardInterrupt from None
        if typed is None:
            return False
        answer = typed.strip().lower()
        if answer in _ANSWERS:
            return default if not answer else _ANSWERS[answer]
        notice("Please answer y or n.")


def _line(prompt: str, *, hidden: bool = False) -> str | None:
    """One line of the user; None after Esc."""
    if find_spec("termios") is not None:
        from osmosis_ai.cli.output.keyboard import typed_line

        return typed_line(prompt, hidden=hidden)
    import click

    try:
        line: str = click.prompt(
            prompt, hide_input=hidden, default="", show_default=False, prompt_suffix="", err=True
        )
    except click.Abort:
        raise KeyboardInterrupt from None
    return line


def _show(question: Question) -> None:
    for label, value in question.summary.items():
        notice(f"  {label}: {value}")
    for heading, lines in (("Notes:", question.notes), ("Warnings:", question.warnings)):
        if lines:
            notice(heading)
            for line in lines:
                notice(f"  - {line}")
