"""API keys of the inference endpoint: one workspace each, shown once, stored as a hash."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.tokens import hash_token, hint_of, new_token
from osmosis_platform.audit.service import record
from osmosis_platform.db.session import Database
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput, NotFound, Unauthenticated
from osmosis_platform.inference.models import ApiKey

PREFIX = "osk_"
_USED_RESOLUTION = timedelta(minutes=1)


def create_key(session: Session, workspace_id: str, user: User, name: str) -> tuple[ApiKey, str]:
    """A new key and its text, which is never seen again. `name` is 1 to 100 characters."""
    name = name.strip()
    if not 1 <= len(name) <= 100:
        raise InvalidInput("An API key needs a name of 1 to 100 characters.", field="name")
    text = new_token(PREFIX)
    key = ApiKey(
        workspace_id=workspace_id,
        name=name,
        key_hash=hash_token(text),
        hint=hint_of(text),
        creator_id=user.id,
    )
    session.add(key)
    session.flush()
    record(session, "api_key.create", name, user_id=user.id, workspace_id=workspace_id)
    return key, text


def list_keys(session: Session, workspace_id: str) -> list[ApiKey]:
    """The workspace's keys that are not revoked, newest first."""
    query = select(ApiKey).where(ApiKey.workspace_id == workspace_id, ApiKey.revoked_at.is_(None))
    return list(session.scalars(query.order_by(ApiKey.created_at.desc(), ApiKey.id)))


def revoke_key(session: Session, workspace_id: str, user: User, key_id: str) -> ApiKey:
    """End a key; ending it twice is fine. Raises NotFound."""
    key = session.get(ApiKey, key_id)
    if key is None or key.workspace_id != workspace_id:
        raise NotFound(f"There is no API key with the id {key_id}.")
    if key.revoked_at is None:
        key.revoked_at = utc_now()
        record(session, "api_key.revoke", key.name, user_id=user.id, workspace_id=workspace_id)
    return key


def authenticate_key(session: Session, text: str) -> ApiKey:
    """The live key with this text; raises Unauthenticated."""
    key = session.scalar(select(ApiKey).where(ApiKey.key_hash == hash_token(text)))
    if key is None:
        raise Unauthenticated("This API key is not valid.", code="invalid_api_key")
    if key.revoked_at is not None:
        raise Unauthenticated("This API key was revoked.", code="invalid_api_key")
    return key


def mark_key_used(database: Database, key: ApiKey) -> None:
    """Note that the key is in use, at most once a minute."""
    now = utc_now()
    if key.last_used_at is None or now - key.last_used_at > _USED_RESOLUTION:
        database.note(update(ApiKey).where(ApiKey.id == key.id).values(last_used_at=now))
