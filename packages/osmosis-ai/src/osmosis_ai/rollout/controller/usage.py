"""Token usage of the model calls of rollouts."""

from collections import defaultdict
from typing import Any


class UsageLedger:
    """Counts what each rollout spent. Only answered calls are recorded, in the order in which they were answered."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._calls: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._totals: defaultdict[str, int] = defaultdict(int)

    def record(self, rollout_id: str, completion: dict[str, Any]) -> None:
        """Add one answered call."""
        usage = completion.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        call = {
            "prompt_tokens": usage.get("prompt_tokens"),
            "completion_tokens": usage.get("completion_tokens"),
            "cached_tokens": details.get("cached_tokens"),
            "model_name": completion.get("model") or self._model_name,
        }
        self._calls[rollout_id].append({key: value for key, value in call.items() if value is not None})
        total = usage.get("total_tokens")
        if total is None:
            total = (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0)
        self._totals[rollout_id] += int(total)

    def calls(self, rollout_id: str) -> int:
        """How many calls of the rollout have been answered."""
        return len(self._calls.get(rollout_id, ()))

    def tokens(self, rollout_id: str) -> int | None:
        """Tokens of the rollout so far, as the model counted them; None when it never called the model."""
        return self._totals.get(rollout_id)

    def report(self, rollout_id: str) -> dict[str, Any] | None:
        """The trajectory report of the rollout, for the acknowledgement of its completion callback."""
        calls = self._calls.get(rollout_id)
        if not calls:
            return None
        sample = {"model_name": self._model_name, "llm_call_metrics": [dict(call) for call in calls]}
        return {"model_name": self._model_name, "samples": {rollout_id: sample}}

    def discard(self, rollout_id: str) -> None:
        """Forget the rollout."""
        self._calls.pop(rollout_id, None)
        self._totals.pop(rollout_id, None)
