"""Blocks that details of training and evaluation runs share."""

import shutil
import sys
from typing import Any

from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import Block

_SCOPES = {"workspace": "workspace", "user": "personal", "user_override": "personal, overrides workspace"}
_PLOT_MIN_COLUMNS = 100
_PLOT_WIDTH = 40
_VALUES_WIDTH = len("    -0.0001234 -> -0.0001234")
_BAR_WIDTH = 16


def configuration_block(answer: dict[str, Any]) -> Block:
    """Entrypoint, config values, source, secrets and variables of a run."""
    lines = [f"Entrypoint: {formats.text(answer.get('entrypoint'))}"]
    if values := configuration_values(answer.get("config")):
        lines.append(f"Config: {values}")
    if answer.get("branch"):
        lines.append(f"Branch: {answer['branch']}")
    if answer.get("commit_sha"):
        lines.append(f"Commit: {str(answer['commit_sha'])[:7]}")
    if secrets := secret_scopes_text(answer.get("resolved_secret_scopes")):
        lines.append(f"Secrets: {secrets}")
    if variables := variables_text(answer.get("env_config")):
        lines.append(f"Environment Variables: {variables}")
    return Block("Configuration", lines)


def configuration_values(config: dict[str, Any] | None) -> str:
    """``section.key=value`` of a config, separated by commas; true and false as in TOML."""
    return ", ".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in flat_config(config or {}).items()
    )


def secret_scopes_text(scopes: dict[str, str] | None) -> str:
    """``NAME (personal, overrides workspace)`` of each secret."""
    return ", ".join(
        f"{name} ({_SCOPES.get(scope, scope)})" for name, scope in sorted((scopes or {}).items())
    )


def variables_text(variables: dict[str, str] | None) -> str:
    """``NAME=value`` of each environment variable."""
    return ", ".join(f"{name}={value}" for name, value in sorted((variables or {}).items()))


def run_duration(run: dict[str, Any], measured_ms: Any) -> str:
    """How long a run took: from its start to its end, else what its metrics tell, else until now."""
    if formats.is_number(measured_ms) and not (run.get("started_at") and run.get("completed_at")):
        return formats.duration(measured_ms / 1000)
    return formats.duration(formats.elapsed(run.get("started_at"), run.get("completed_at")))


def error_rows(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Why a run failed, when it did."""
    return [("Error", str(run["error"]))] if run.get("error") else []


def flat_config(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """``section.key`` to value; ``model_path`` is shown elsewhere, values that are not set are left out."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= flat_config(value, f"{prefix}{key}.")
        elif value is not None and key != "model_path":
            flat[f"{prefix}{key}"] = value
    return flat


def metric_block(document: dict[str, Any] | None) -> Block | None:
    """One small plot per metric, for a person at a wide terminal only."""
    wide = (
        mode() is Mode.RICH
        and sys.stdout.isatty()
        and shutil.get_terminal_size().columns >= _PLOT_MIN_COLUMNS
    )
    return plots(document) if wide and document is not None else None


def plots(document: dict[str, Any]) -> Block | None:
    """The series of a metrics document as lines that fit the terminal; None when there are none."""
    if not document["metrics"]:
        return None
    from osmosis_ai.cli.sparkline import sparkline

    titles = max(len(series["title"]) for series in document["metrics"])
    width = min(_PLOT_WIDTH, shutil.get_terminal_size().columns - titles - _VALUES_WIDTH)
    lines = [
        f"{series['title']:<{titles}}  "
        + sparkline([(point["step"], point["value"]) for point in series["data"]], width)
        for series in document["metrics"]
    ]
    return Block("", lines)


def progress_bar(progress: dict[str, Any] | None) -> str:
    """``███░░░ 3 / 10 steps``."""
    if progress is None:
        return formats.MISSING
    from osmosis_ai.cli.sparkline import bar

    completed, total = progress["completed"], progress["total"]
    text = formats.progress(completed, total, progress["unit"])
    return f"{bar(completed / total if total else 0, _BAR_WIDTH)} {text}"
