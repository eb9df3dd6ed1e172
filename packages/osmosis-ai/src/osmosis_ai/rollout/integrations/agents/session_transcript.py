"""From OpenAI Agents session items to chat messages that keep usage, model, times and reasoning."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from agents.models.chatcmpl_converter import Converter

from osmosis_ai.rollout.context import SampleSource
from osmosis_ai.rollout.integrations.agents.policy_client import WIRE_MODEL
from osmosis_ai.rollout.types.sample import RolloutSample

logger = logging.getLogger(__name__)

# Key inside an item's `provider_data`, which the framework keeps in sessions and never sends to a model.
_CALL_KEY = "osmosis_call"


class HasItems(Protocol):
    """A session whose items can be read directly."""

    items: list[Any]


class SessionSampleSource(SampleSource):
    """The conversation that one session recorded."""

    def __init__(self, session: HasItems) -> None:
        self.session = session

    async def get_sample(self) -> RolloutSample:
        """The session's items, and their chat form for the trajectory."""
        items = list(self.session.items)
        trajectory: list[dict[str, Any]] | None
        try:
            trajectory = chat_messages(items)
        except Exception as error:
            logger.warning("Failed to convert OpenAI Agents items for trajectory persistence: %s", error)
            trajectory = None
        return RolloutSample(messages=items, trajectory_messages=trajectory)


def annotate_output(output: Sequence[Any], *, usage: Any, created_at: float) -> None:
    """Note on the first item of a model's answer what the call behind it used and when it was made (epoch seconds)."""
    if not output:
        return
    facts: dict[str, Any] = {"model": WIRE_MODEL, "created_at": created_at}
    if usage is not None:
        facts["usage"] = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "cached_tokens": usage.input_tokens_details.cached_tokens,
        }
    first = output[0]
    first.provider_data = {**(getattr(first, "provider_data", None) or {}), _CALL_KEY: facts}


def chat_messages(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items as chat messages; the first assistant message of each model call carries the facts of that call."""
    groups = [(group, _call_facts(group)) for group in _by_model_call(items)]
    if not any(facts for _, facts in groups):
        return _convert(items)
    return [message for group, facts in groups for message in _with_facts(group, facts)]


def _convert(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(message) for message in Converter.items_to_messages(list(items))]


def _with_facts(group: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    converted = _convert(group)
    if not facts:
        return converted
    answer = next((message for message in converted if message.get("role") == "assistant"), None)
    if answer is None:
        # The framework leaves out a turn of nothing but reasoning; here it stands for a model call that took place.
        answer = {"role": "assistant", "content": ""}
        converted.append(answer)
    answer.update(facts)
    return converted


def _by_model_call(items: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Runs of items: what one model call produced, and what came between the calls."""
    group: list[Mapping[str, Any]] = []
    for item in items:
        starts_call = _call_note(item) is not None
        if group and (starts_call or _is_model_output(item) != _is_model_output(group[-1])):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _is_model_output(item: Mapping[str, Any]) -> bool:
    kind = str(item.get("type") or "")
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _call_note(item: Mapping[str, Any]) -> dict[str, Any] | None:
    provider_data = item.get("provider_data")
    note = provider_data.get(_CALL_KEY) if isinstance(provider_data, Mapping) else None
    return note if isinstance(note, dict) else None


def _call_facts(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    facts = dict(_call_note(group[0]) or {})
    texts = [
        str(part.get("text"))
        for item in group
        if item.get("type") == "reasoning"
        for part in (item.get("content") or item.get("summary") or [])
        if isinstance(part, Mapping) and part.get("text")
    ]
    if texts:
        facts["reasoning_content"] = "\n".join(texts)
    return facts
