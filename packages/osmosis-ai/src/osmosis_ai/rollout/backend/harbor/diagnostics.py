"""What the result of a trial says about where it failed and where its time went.

Results are Harbor's ``TrialResult`` or anything with its attributes; absent ones count as not set.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from osmosis_ai.rollout.types.enums import RolloutErrorCategory

REDACTED = "[REDACTED]"

_SENSITIVE = ("api_key", "token", "secret", "password", "authorization", "credential", "credentials")
_SPANS = {
    "environment_setup": "environment_setup",
    "agent_setup": "agent_setup",
    "agent": "agent_execution",
    "verifier": "verifier",
}


def trial_timings(result: Any) -> dict[str, float]:
    """Seconds of each phase and of the whole trial, to two decimals; phases without a start or an end are left out."""
    timings: dict[str, float] = {}
    for name, attribute in _SPANS.items():
        seconds = _seconds(getattr(result, attribute, None))
        if seconds is not None:
            timings[name] = seconds
    total = _seconds(result)
    if total is not None:
        timings["total"] = total
    return timings


def failure_phase(result: Any) -> str:
    """The furthest phase that a failed trial reached; ``setup`` when there was no trial.

    An exception from before the verifier's start is blamed on the agent's side, though the verifier ran as well.
    """
    phases = ["environment_setup", "agent_setup", "agent"]
    if agent_phase_failure(result) is None:
        phases.append("verifier")
    spans = [(phase, _SPANS[phase]) for phase in phases]
    reached = [phase for phase, name in spans if any(_started(holder, name) for holder in _holders(result))]
    return reached[-1] if reached else "setup"


def agent_phase_failure(result: Any) -> Any | None:
    """The exception info of what failed before the verifier started, or None. A time without a zone is local time."""
    for holder in _holders(result):
        failure = getattr(holder, "exception_info", None)
        if failure is None:
            continue
        verified_from = getattr(getattr(holder, "verifier", None), "started_at", None)
        if verified_from is None:
            return failure
        occurred = getattr(failure, "occurred_at", None)
        if occurred is not None and _aware(occurred) < _aware(verified_from):
            return failure
    return None


def trial_exception(result: Any) -> Any | None:
    """The exception info of the trial, else of its first step that has one."""
    infos = (getattr(holder, "exception_info", None) for holder in _holders(result))
    return next((info for info in infos if info is not None), None)


def failure_payload(
    *,
    phase: str,
    category: RolloutErrorCategory | None,
    exception_type: str | None = None,
    result: Any = None,
    api_key: str | None = None,
) -> dict[str, Any]:
    """The diagnostics of one failed rollout, without secrets."""
    payload = {
        "backend": "harbor",
        "phase": phase,
        "harbor_exception_type": exception_type,
        "category": None if category is None else category.value,
        "timings_sec": trial_timings(result),
    }
    return dict(redact_secrets(payload, api_key))


def redact_secrets(value: Any, api_key: str | None = None) -> Any:
    """A copy with every text that contains ``api_key``, and everything under the name of a secret, replaced as a whole.

    Names of secrets are ``api_key``, ``token``, ``secret``, ``password``, ``authorization`` and ``credential(s)``, alone or
    behind an underscore, in any case.
    """
    if isinstance(value, Mapping):
        return {
            redact_secrets(key, api_key): REDACTED if _names_a_secret(key) else redact_secrets(item, api_key)
            for key, item in value.items()
        }
    if isinstance(value, tuple):
        return tuple(redact_secrets(item, api_key) for item in value)
    if isinstance(value, list | set | frozenset):
        return type(value)(redact_secrets(item, api_key) for item in value)
    if isinstance(value, str) and api_key and api_key in value:
        return REDACTED
    return value


def _names_a_secret(key: Any) -> bool:
    if not isinstance(key, str):
        return False
    name = key.lower().replace("-", "_")
    return any(name == word or name.endswith(f"_{word}") for word in _SENSITIVE)


def _holders(result: Any) -> Iterator[Any]:
    """The trial and, where the task has several, its steps: each may hold an exception and spans of its own."""
    if result is None:
        return
    yield result
    steps = getattr(result, "step_results", None)
    if isinstance(steps, list):
        yield from steps


def _started(holder: Any, name: str) -> bool:
    return getattr(getattr(holder, name, None), "started_at", None) is not None


def _seconds(span: Any) -> float | None:
    started = getattr(span, "started_at", None)
    finished = getattr(span, "finished_at", None)
    if started is None or finished is None:
        return None
    return round((_aware(finished) - _aware(started)).total_seconds(), 2)


def _aware(moment: datetime) -> datetime:
    return moment.astimezone()
