"""The outcome of judging a file: numbers per record and over all, as text and as JSON."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.eval.rubric.result import JudgeUsage

REPORT_NAME = "rubric_eval_result.json"
_SHOWN_ERRORS = 3


def calculate_statistics(scores: Sequence[float]) -> dict[str, float]:
    """``average``, ``variance`` and ``stdev`` of the whole population, ``min`` and ``max``; all 0.0 without scores."""
    if not scores:
        return {"average": 0.0, "variance": 0.0, "stdev": 0.0, "min": 0.0, "max": 0.0}
    average = math.fsum(scores) / len(scores)
    variance = math.fsum((score - average) ** 2 for score in scores) / len(scores)
    return {
        "average": average,
        "variance": variance,
        "stdev": math.sqrt(variance),
        "min": min(scores),
        "max": max(scores),
    }


@dataclass(slots=True)
class RecordResult:
    """The judgements of one record; ``index`` counts from 1. A call that failed has an entry in ``errors`` instead of a score."""

    index: int
    label: str
    scores: list[float] = field(default_factory=list)
    explanations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def statistics(self) -> dict[str, float]:
        """Over the scores of this record."""
        return calculate_statistics(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """The record in the report."""
        return {
            "index": self.index,
            "label": self.label,
            "scores": self.scores,
            "explanations": self.explanations,
            "errors": self.errors,
            "statistics": self.statistics,
        }


@dataclass(slots=True)
class RubricReport:
    """All judgements of a file. ``usages`` holds what the calls took, as far as the provider told."""

    model: str
    rubric: str
    data_path: str
    number: int
    records: list[RecordResult]
    usages: list[JudgeUsage] = field(default_factory=list)
    generated_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def scores(self) -> list[float]:
        """The scores of all records."""
        return [score for record in self.records for score in record.scores]

    @property
    def overall_statistics(self) -> dict[str, float]:
        """Over the scores of all records."""
        return calculate_statistics(self.scores)

    @property
    def common_error(self) -> str | None:
        """Why nothing could be judged, when it is the same for every judgement of several records."""
        errors = {error for record in self.records for error in record.errors}
        return next(iter(errors)) if len(errors) == 1 < len(self.records) and not self.scores else None

    @property
    def error_count(self) -> int:
        """Number of judgements that failed."""
        return sum(len(record.errors) for record in self.records)

    @property
    def usage(self) -> dict[str, float] | None:
        """Tokens and US dollars of all calls together; None when the provider told nothing."""
        names = ("prompt_tokens", "completion_tokens", "cost_usd")
        told = {
            name: [v for usage in self.usages if (v := getattr(usage, name)) is not None] for name in names
        }
        return {name: sum(values) for name, values in told.items() if values} or None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON; ``usage`` only when it is known."""
        report = {
            "generated_at": self.generated_at,
            "model": self.model,
            "rubric": self.rubric,
            "data_path": self.data_path,
            "number": self.number,
            "overall_statistics": self.overall_statistics,
            "records": [record.to_dict() for record in self.records],
        }
        return report if self.usage is None else {**report, "usage": self.usage}


class ConsoleReportRenderer:
    """A report as lines for people, each given to ``printer``."""

    def __init__(self, printer: Callable[[str], Any] = print) -> None:
        self._line = printer

    def render(self, report: RubricReport) -> None:
        """Each record with its scores and what failed, then the statistics and what it took.

        What no record is judged for is said once.
        """
        if report.common_error is not None:
            self._line(f"Error: {report.common_error}")
        else:
            for record in report.records:
                self._record(record)
        self._line(f"Overall: {_numbers(report.overall_statistics) if report.scores else 'no score'}")
        if report.usage is not None:
            self._line(f"Usage: {_usage(report.usage)}")

    def _record(self, record: RecordResult) -> None:
        if record.scores:
            shown = ", ".join(f"{score:.3f}" for score in record.scores)
            spread = f" ({_numbers(record.statistics)})" if len(record.scores) > 1 else ""
            self._line(f"{record.label}: {shown}{spread}")
        else:
            self._line(f"{record.label}: no score")
        if record.explanations:
            self._line(f"  {record.explanations[0]}")
        for error in record.errors[:_SHOWN_ERRORS]:
            self._line(f"  Error: {error}")
        if len(record.errors) > _SHOWN_ERRORS:
            self._line(f"  and {len(record.errors) - _SHOWN_ERRORS} more errors")


class JsonReportWriter:
    """Writes a report to a file, whole or not at all."""

    @staticmethod
    def target(path: str | Path) -> Path:
        """The file for ``path``: a folder, or a name with a slash at its end, gets ``rubric_eval_result.json`` inside."""
        target = Path(path).expanduser()
        is_folder = str(path).endswith(("/", os.sep)) or target.is_dir()
        return target / REPORT_NAME if is_folder else target

    def check(self, path: str | Path) -> Path:
        """The file, after making sure that it can be written: before a judge costs money.

        Raises:
            CLIError: a file is where a folder must be, or the folder cannot be written to.
        """
        target = self.target(path)
        there = next(parent for parent in target.absolute().parents if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise CLIError(
                f"The report cannot be written to {target}: {there} is no folder that can be written to.",
                details={"path": str(target)},
            )
        return target

    def write(self, report: RubricReport, path: str | Path) -> Path:
        """Write the report and return the file.

        Raises:
            CLIError: it cannot be written; what was there before is unchanged.
        """
        target = self.target(path)
        text = json.dumps(report.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, text)
        except OSError as error:
            raise CLIError(
                f"The report cannot be written to {target}: {error.strerror}.", details={"path": str(target)}
            ) from error
        return target


def _replace(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    partial = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        partial.chmod(0o644)
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _numbers(statistics: dict[str, float]) -> str:
    names = ("average", "stdev", "min", "max")
    return ", ".join(f"{name} {statistics[name]:.3f}" for name in names)


def _usage(usage: dict[str, float]) -> str:
    parts = [
        f"{usage[name]:,} {name.replace('_', ' ')}"
        for name in ("prompt_tokens", "completion_tokens")
        if name in usage
    ]
    return ", ".join(parts + ([f"${usage['cost_usd']:.4f}"] if "cost_usd" in usage else []))
