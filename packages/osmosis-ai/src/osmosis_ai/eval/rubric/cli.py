"""``osmosis eval rubric``: judging a file of texts, several at a time."""

import asyncio
import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import counter
from osmosis_ai.cli.output.mode import interactive
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.eval.rubric.dataset import RubricRecord, load_rubric_dataset
from osmosis_ai.eval.rubric.engine import evaluate_rubric
from osmosis_ai.eval.rubric.report import (
    ConsoleReportRenderer,
    JsonReportWriter,
    RecordResult,
    RubricReport,
)
from osmosis_ai.eval.rubric.result import JudgeUsage, RubricResult

MAX_CONCURRENT = 8


class RubricCommand:
    """Scores every record of a JSONL file ``number`` times and reports scores, spread and errors."""

    def run(
        self,
        *,
        data: str,
        rubric: str,
        model: str,
        number: int = 1,
        output_path: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        score_min: float = 0.0,
        score_max: float = 1.0,
    ) -> OperationResult:
        """Judge and report. ``rubric`` is text, or ``@`` and the name of a file.

        A judgement that fails is reported with its record, and the status is ``failed`` then.

        Raises:
            CLIError: an argument, the data or the output path cannot be used; nothing has been asked.
        """
        _check_numbers(number, timeout)
        if not model.strip():
            raise CLIError(
                "--model must not be empty; it is a name such as openai/gpt-5-mini.",
                details={"field": "model"},
            )
        text = _rubric_text(rubric)
        records = load_rubric_dataset(data)
        writer = JsonReportWriter()
        if output_path is not None:
            writer.check(output_path)
        judging = _Judging(
            {
                "rubric": text,
                "model": model,
                "api_key": api_key,
                "timeout": timeout,
                "score_min": score_min,
                "score_max": score_max,
            },
            number,
        )
        with _quiet_libraries(), _progress() as show:
            results = asyncio.run(judging.judge_all(records, show))
        report = RubricReport(model, text, str(data), number, results, judging.usages)
        written = writer.write(report, output_path) if output_path is not None else None
        return _result(report, written)


@dataclass(slots=True)
class _Judging:
    arguments: dict[str, Any]
    number: int
    usages: list[JudgeUsage] = field(default_factory=list)

    async def judge_all(
        self, records: list[RubricRecord], show: Callable[[int, int], Any]
    ) -> list[RecordResult]:
        """Judge each record ``number`` times, at most eight calls at once. Results keep the order of the records."""
        gate, total, done = asyncio.Semaphore(MAX_CONCURRENT), len(records) * self.number, 0

        async def one(record: RubricRecord) -> RubricResult | str:
            nonlocal done
            async with gate:
                outcome = await self._judge(record)
            done += 1
            show(done, total)
            return outcome

        show(0, total)
        outcomes = await asyncio.gather(*(one(record) for record in records for _ in range(self.number)))
        return [
            self._gathered(
                RecordResult(index, record.label(index)),
                outcomes[(index - 1) * self.number : index * self.number],
            )
            for index, record in enumerate(records, 1)
        ]

    async def _judge(self, record: RubricRecord) -> RubricResult | str:
        """The result, or what went wrong."""
        if record.solution_str is None:
            return "The conversation has no text of the assistant to judge."
        try:
            return await evaluate_rubric(
                solution_str=record.solution_str,
                ground_truth=record.ground_truth,
                original_input=record.original_input,
                metadata=record.metadata,
                **self.arguments,
            )
        except ImportError:
            raise
        except Exception as error:  # whatever one call meets, the others count
            return str(error) or type(error).__name__

    def _gathered(self, result: RecordResult, outcomes: list[RubricResult | str]) -> RecordResult:
        for outcome in outcomes:
            if isinstance(outcome, str):
                result.errors.append(outcome)
                continue
            result.scores.append(outcome.score)
            result.explanations.append(outcome.explanation)
            if isinstance(outcome.usage, JudgeUsage):
                self.usages.append(outcome.usage)
        return result


def _check_numbers(number: int, timeout: float | None) -> None:
    if number < 1:
        raise CLIError(
            f"--number must be 1 or more, got {number}.", details={"field": "number", "value": number}
        )
    if timeout is not None and not 0 < timeout < math.inf:
        raise CLIError(
            f"--timeout must be a positive number of seconds, got {timeout:g}.", details={"field": "timeout"}
        )


def _rubric_text(rubric: str) -> str:
    if not rubric.startswith("@"):
        if not rubric.strip():
            raise CLIError("The rubric is empty: give its text, or @ and the name of a file.")
        return rubric.strip()
    path = Path(rubric[1:]).expanduser()
    details = {"path": str(path)}
    if path.is_dir():
        raise CLIError(f"The rubric file is a directory: {path}.", details=details)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise CLIError(f"The rubric file does not exist: {path}.", details=details) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CLIError(f"The rubric file cannot be read: {path}: {error}.", details=details) from error
    if not text:
        raise CLIError(f"The rubric file is empty: {path}.", details=details)
    return text


def _progress() -> AbstractContextManager[Callable[[int, int], Any]]:
    """A bar for a person; nothing otherwise."""
    if interactive() and sys.stderr.isatty():
        return counter("Judging", "judgements")
    return contextlib.nullcontext(lambda _done, _total: None)


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """LiteLLM writes its own account of an error to standard error; ours is in the report."""
    logger = logging.getLogger("LiteLLM")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _result(report: RubricReport, written: Path | None) -> OperationResult:
    resource: dict[str, Any] = {
        "model": report.model,
        "data_path": report.data_path,
        "number": report.number,
        "statistics": report.overall_statistics,
        "record_count": len(report.records),
        "error_count": report.error_count,
    }
    if report.usage is not None:
        resource["usage"] = report.usage
    if written is not None:
        resource["output_path"] = str(written)
    else:
        resource["records"] = [record.to_dict() for record in report.records]
    lines: list[str] = []
    ConsoleReportRenderer(lines.append).render(report)
    if written is not None:
        lines.append(f"Report: {written}")
    failed = report.error_count > 0
    return OperationResult(
        "eval.rubric",
        status="failed" if failed else "success",
        resource=resource,
        message=_message(report),
        next_text=lines,
    )


def _message(report: RubricReport) -> str:
    total = len(report.records) * report.number
    judged = total - report.error_count
    words = f"{judged} of {total} judgements of {len(report.records)} records by {report.model}"
    if report.error_count:
        return f"{words}; {report.error_count} failed."
    return f"{words}."
