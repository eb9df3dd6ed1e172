"""Writing what remains of a rollout into its folder."""

import asyncio
import json
import logging
import os
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.trajectory.atif import format_trajectory_json
from osmosis_ai.rollout.trajectory.converter import convert_sample_to_trajectory
from osmosis_ai.rollout.trajectory.report import SampleReport, TrajectoryReport
from osmosis_ai.rollout.types.execution import ExecutionResult
from osmosis_ai.rollout.types.json_safe import json_safe_mapping
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.utils.file_artifacts import default_artifact_root
from osmosis_ai.rollout.utils.identifiers import ensure_single_path_segment
from osmosis_ai.rollout.utils.thread_batches import ThreadBatches

logger = logging.getLogger(__name__)

TRAJECTORY_FILENAME = "trajectory.json"
DIAGNOSTICS_FILENAME = "diagnostics.json"
# Nobody waits for it but the end of the server.
_ARCHIVE = ThreadBatches(pause_sec=0.02)


async def save_trajectory(
    *,
    rollout_id: str,
    result: ExecutionResult,
    request_label: str | None = None,
    request_metadata: Mapping[str, Any] | None = None,
    request_extra_fields: Mapping[str, Any] | None = None,
    report: TrajectoryReport | None = None,
    artifact_root: Path | None = None,
    diagnostics: Mapping[str, Any] | None = None,
) -> None:
    """Write ``trajectory.json`` of the result's sample, and ``diagnostics.json`` (the argument, else the result's own).

    Nothing is written for a result without either. Never raises: archiving must not change the outcome of a rollout, so
    every problem becomes a warning.
    """
    try:
        ensure_single_path_segment(rollout_id, label="rollout_id")
        folder = f"{artifact_root or default_artifact_root()}/{rollout_id}"
    except Exception:
        logger.warning("Cannot archive rollout %r", rollout_id, exc_info=True)
        return
    sidecar = diagnostics if diagnostics is not None else result.extra_fields
    if sidecar is not None:
        try:
            await asyncio.to_thread(_write, f"{folder}/{DIAGNOSTICS_FILENAME}", _diagnostics_text(sidecar))
        except Exception:
            logger.warning("Cannot save diagnostics of rollout %s", rollout_id, exc_info=True)
    if result.sample is None:
        return
    if result.sample.trajectory_messages is None:
        logger.info("Skipping trajectory for rollout %s: its sample has no trajectory messages", rollout_id)
        return
    try:
        # Long conversations take a while to convert; other rollouts share this event loop.
        await _ARCHIVE.run(
            partial(
                _save_document,
                f"{folder}/{TRAJECTORY_FILENAME}",
                result.sample,
                report,
                rollout_id=rollout_id,
                request_label=request_label,
                request_metadata=request_metadata,
                request_extra_fields=request_extra_fields,
            )
        )
    except Exception:
        logger.warning("Cannot save the trajectory of rollout %s", rollout_id, exc_info=True)


def _save_document(
    path: str, sample: RolloutSample, report: TrajectoryReport | None, *, rollout_id: str, **request: Any
) -> None:
    sample_report, unmatched = _report_of_sample(report, rollout_id)
    trajectory = convert_sample_to_trajectory(
        sample,
        rollout_id=rollout_id,
        report=sample_report,
        default_model_name=report.model_name if report else None,
        unmatched_sample_reports=unmatched,
        **request,
    )
    _write(path, format_trajectory_json(trajectory.to_json_dict(exclude_none=True)))


def _report_of_sample(
    report: TrajectoryReport | None, rollout_id: str
) -> tuple[SampleReport | None, dict[str, Any] | None]:
    """The report of the one sample; several entries cannot be told apart and are kept aside."""
    if report is None or not report.samples:
        return None, None
    if len(report.samples) == 1:
        return next(iter(report.samples.values())), None
    logger.warning(
        "The trajectory report of rollout %s has %d samples for one; preserving them under extra.osmosis.unmatched_sample_reports",
        rollout_id,
        len(report.samples),
    )
    return None, {key: entry.model_dump(exclude_none=True) for key, entry in report.samples.items()}


def _diagnostics_text(diagnostics: Mapping[str, Any]) -> str:
    safe, _ = json_safe_mapping(diagnostics)
    return json.dumps(safe, indent=2, sort_keys=True, allow_nan=False)


def _write(path: str, text: str) -> None:
    # A reader polls for the file, so it appears only when it is whole.
    folder, _, name = path.rpartition("/")
    partial = Path(f"{folder}/.{name}.{uuid.uuid4().hex}")
    content = text.encode("utf-8") + b"\n"
    try:
        try:
            partial.write_bytes(content)
        except FileNotFoundError:
            partial.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
