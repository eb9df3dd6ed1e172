"""Which model an evaluation asks: one that this platform serves, or a provider's."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_ai.provider_names import has_known_provider, similar_provider
from osmosis_platform.adapters.base_models import SHIPPED_NAMESPACE, find_base_model, why_unregistered
from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.errors import InvalidInput, NotFound

_FIELD = "experiment.model_path"


@dataclass(frozen=True, slots=True)
class EvalModel:
    """`base` is None for a provider's model; `lora` is None for a base model."""

    base: BaseModel | None
    lora: LoraModel | None = None


def resolve_eval_model(session: Session, workspace_id: str, model_path: str) -> EvalModel:
    """The model of an evaluation.

    A base model's name, `<base>:<lora>` with a deployed LoRA model of the workspace, or `provider/model` for a provider
    through LiteLLM. Raises InvalidInput for a LoRA model that is not deployed, NotFound for one that is not there and for an
    unknown provider.
    """
    base = find_base_model(session, model_path)
    if base is not None:
        return EvalModel(base)
    prefix, colon, lora_name = model_path.rpartition(":")
    base = find_base_model(session, prefix) if colon else None
    if base is not None:
        return EvalModel(base, _deployed(session, workspace_id, base, lora_name))
    if model_path.startswith(SHIPPED_NAMESPACE):
        raise NotFound(
            f"Model not found: {model_path}.{why_unregistered(session, model_path)}",
            code="MODEL_NOT_FOUND",
            field=_FIELD,
        )
    if "/" not in model_path.strip("/"):
        raise NotFound(
            f"Model not found: {model_path}. Name a base model, <base model>:<LoRA model>, or provider/model such as "
            "openai/gpt-5-mini.",
            code="MODEL_NOT_FOUND",
            field=_FIELD,
        )
    _require_provider(model_path)
    return EvalModel(None)


def _require_provider(model_path: str) -> None:
    if has_known_provider(model_path):
        return
    provider = model_path.partition("/")[0]
    close = similar_provider(model_path)
    raise NotFound(
        f"Model not found: {model_path}. This platform has no such base model, and there is no provider '{provider}'."
        + (f" Did you mean '{close}'?" if close else "")
        + " Name a base model, <base model>:<LoRA model>, or provider/model such as openai/gpt-5-mini.",
        code="MODEL_NOT_FOUND",
        field=_FIELD,
    )


def _deployed(session: Session, workspace_id: str, base: BaseModel, name: str) -> LoraModel:
    lora = session.scalar(
        select(LoraModel).where(LoraModel.workspace_id == workspace_id, LoraModel.name == name)
    )
    if lora is None or lora.base_model_id != base.id:
        raise NotFound(
            f"Model not found: {base.name} has no LoRA model {name} in this workspace.",
            code="MODEL_NOT_FOUND",
            field=_FIELD,
        )
    if lora.deployment_status != "active":
        raise InvalidInput(
            f"LoRA model {name} is not deployed. Deploy it first: osmosis model deploy {quote(name)}",
            code="MODEL_NOT_DEPLOYED",
            field=_FIELD,
        )
    return lora
