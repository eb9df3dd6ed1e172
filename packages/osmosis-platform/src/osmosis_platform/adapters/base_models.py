"""Base models: the shipped ones, local folders, and names on Hugging Face."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from osmosis_platform.adapters.model_files import why_untrainable
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.errors import InvalidInput, NotFound
from osmosis_platform.http.paging import Page

SHIPPED_NAMESPACE = "osmosis/"
_FROM_HUB = "From Hugging Face."
_HUB_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")


def register_shipped(session: Session, models: Mapping[str, Path]) -> None:
    """Make the models that come with the trainer known; called at every start, since their folder may have moved."""
    for name, path in models.items():
        known = session.scalar(select(BaseModel).where(BaseModel.name == name))
        if known is None:
            session.add(BaseModel(name=name, path=str(path), description="Ships with the trainer."))
        elif known.path != str(path):
            known.path = str(path)
    session.flush()


def find_base_model(session: Session, name_or_id: str) -> BaseModel | None:
    """The base model of that name, folder or id."""
    for column in (BaseModel.name, BaseModel.id, BaseModel.path):
        found = session.scalar(select(BaseModel).where(column == name_or_id).limit(1))
        if found is not None:
            return found
    return None


def base_model(session: Session, name_or_id: str) -> BaseModel:
    """Like `find_base_model`; raises NotFound."""
    found = find_base_model(session, name_or_id)
    if found is None:
        raise NotFound(f"Base model not found: {name_or_id}")
    return found


def why_unregistered(session: Session, name: str) -> str:
    """What to add to the error about an unknown model: that the trainer, whose model it may be, is not there yet. Else empty."""
    shipped = BaseModel.name.startswith(SHIPPED_NAMESPACE, autoescape=True)
    if not name.startswith(SHIPPED_NAMESPACE) or session.scalar(select(BaseModel.id).where(shipped).limit(1)):
        return ""
    return (
        " The models that come with the trainer are registered as soon as its interpreter answers, and it has not yet: the "
        "platform's log says why (OSMOSIS_TRAINER_PYTHON names it)."
    )


def resolve_for_training(session: Session, model_path: str) -> BaseModel:
    """The base model that a training config names, registered now if it is new.

    A model may be a registered name, an absolute path of a folder with a `config.json` on the platform's machine, or a name
    `owner/model` on Hugging Face. Raises NotFound and InvalidInput with what to write instead.
    """
    known = find_base_model(session, model_path)
    if known is not None:
        return known
    if model_path.startswith(("/", "~", "./", "../")):
        return _register_folder(session, Path(model_path))
    if model_path.startswith(SHIPPED_NAMESPACE) or not _HUB_NAME.match(model_path):
        names = ", ".join(session.scalars(select(BaseModel.name).order_by(BaseModel.name).limit(10)))
        raise NotFound(
            f"Model not found: {model_path}. Known base models: {names or 'none'}. A folder on the platform's machine "
            "(absolute path) or a Hugging Face name (owner/model) is possible too."
            + why_unregistered(session, model_path),
            code="MODEL_NOT_FOUND",
            field="experiment.model_path",
        )
    model = BaseModel(name=model_path, path=None, description=_FROM_HUB)
    session.add(model)
    session.flush()
    return model


def _register_folder(session: Session, folder: Path) -> BaseModel:
    if not folder.is_absolute():
        raise InvalidInput(
            f"experiment.model_path: a model folder needs an absolute path on the platform's machine, got {folder}.",
            field="experiment.model_path",
        )
    folder = folder.resolve()
    known = find_base_model(session, str(folder))
    if known is not None:
        return known
    if not os.path.isfile(folder / "config.json"):  # False, not an error, for a name that no folder can have
        raise NotFound(
            f"Model not found: {folder} has no config.json on the platform's machine.",
            code="MODEL_NOT_FOUND",
            field="experiment.model_path",
        )
    reason = why_untrainable(folder)
    if reason is not None:
        raise InvalidInput(
            f"experiment.model_path: the model in {folder} cannot be trained: {reason}.",
            field="experiment.model_path",
        )
    model = BaseModel(name=str(folder), path=str(folder), description="A folder on the platform's machine.")
    session.add(model)
    session.flush()
    return model


def on_hub(model: BaseModel) -> bool:
    """Whether a model comes from Hugging Face, whether or not it has been fetched."""
    return model.description == _FROM_HUB


def list_base_models(session: Session, page: Page) -> tuple[list[BaseModel], int]:
    """A page of base models, newest first, and how many there are."""
    total = session.scalar(select(func.count()).select_from(BaseModel)) or 0
    query = select(BaseModel).order_by(BaseModel.created_at.desc(), BaseModel.name)
    return list(session.scalars(query.offset(page.offset).limit(page.limit))), total
