"""Showing a base model."""

from typing import TYPE_CHECKING, Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.results import DetailResult
from osmosis_ai.platform.errors import PlatformError

if TYPE_CHECKING:
    from osmosis_ai.platform.api.client import PlatformClient

_FACTS = ["namespace", "hf_url", "parameters", "context_window"]
_PRICES = {
    "Input": "inference_input_usd_per_million_tokens",
    "Cached Input": "inference_cached_input_usd_per_million_tokens",
    "Output": "inference_output_usd_per_million_tokens",
}


def find_base_model(client: "PlatformClient", name: str) -> dict[str, Any] | None:
    """The base model of a name, or None when the platform knows none."""
    from osmosis_ai.platform.api.client import segment

    try:
        return client.get(f"/models/base/{segment(name)}")
    except PlatformError as error:
        if error.status_code == 404:
            return None
        raise


def base_model_detail(name: str, found: dict[str, Any], context: dict[str, Any]) -> DetailResult:
    """One base model; prices only where the platform has them."""
    shown = serializers.base_model(found) | serializers.pick(found, _FACTS)
    shown |= {key: found[key] for key in _PRICES.values() if formats.is_number(found.get(key))}
    identity = [("ID", str(found["id"]))] if found.get("is_internal_user") else []
    prices = [
        (f"{label} Price", f"${found[key]:g} per million tokens")
        for label, key in _PRICES.items()
        if formats.is_number(found.get(key))
    ]
    url = found.get("platform_url")
    rows = [
        ("Name", formats.text(found.get("model_name"))),
        *identity,
        ("Parameters", formats.count(found.get("parameters"))),
        ("Context Window", formats.count(found.get("context_window"))),
        *prices,
        ("Created", formats.date(found.get("created_at"), seconds=True)),
        ("Created By", formats.text(found.get("creator_name"))),
    ]
    return DetailResult(
        {"base_model": shown, "platform_url": url, **context},
        rows,
        title="Base Model",
        hints=[f"View: {url}"] if url else [],
        next_text=[f'Evaluate or train it: model_path = "{shown["model_name"] or name}" in a config'],
    )
