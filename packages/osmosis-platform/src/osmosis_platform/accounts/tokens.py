"""Bearer tokens: made once, shown once, kept as a hash."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.accounts.models import AccessToken
from osmosis_platform.audit.service import record
from osmosis_platform.db.session import Database
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput, NotFound, Unauthenticated

PREFIX = "osm_"
DEVICE_TOKEN_DAYS = 90
MAX_DAYS = 3650
_USED_RESOLUTION = timedelta(minutes=1)


def new_token(prefix: str = PREFIX) -> str:
    """A fresh opaque credential: the prefix and 256 random bits."""
    return prefix + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What is stored of a credential with 256 random bits: SHA-256, hex. A slow hash would add nothing to so much entropy."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def hint_of(token: str) -> str:
    """The end of a credential, by which its owner recognises it."""
    return f"…{token[-4:]}"


def create_token(
    session: Session, user_id: str, *, name: str, kind: str = "personal", expires_at: datetime | None = None
) -> tuple[AccessToken, str]:
    """A new token and its text, which is never seen again. `kind`: `personal` or `device`."""
    text = new_token()
    token = AccessToken(
        user_id=user_id,
        name=name,
        kind=kind,
        token_hash=hash_token(text),
        hint=hint_of(text),
        expires_at=expires_at,
    )
    session.add(token)
    session.flush()
    return token, text


def create_personal_token(
    session: Session, user_id: str, name: str, days: int | None = None
) -> tuple[AccessToken, str]:
    """A token that a person makes for a program. `name` is 1 to 100 characters, `days` until it ends 1 to 3650; None is never."""
    name = name.strip()
    if not 1 <= len(name) <= 100:
        raise InvalidInput("A token needs a name of 1 to 100 characters.", field="name")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"A token lives 1 to {MAX_DAYS} days, or without end.", field="days")
    expires_at = None if days is None else utc_now() + timedelta(days=days)
    token, text = create_token(session, user_id, name=name, expires_at=expires_at)
    record(session, "token.create", name, user_id=user_id, token_id=token.id)
    return token, text


def authenticate(session: Session, text: str) -> AccessToken:
    """The live token with this text, with its user loaded.

    Raises Unauthenticated with code TOKEN_INVALID, TOKEN_EXPIRED or TOKEN_REVOKED.
    """
    token = session.scalar(
        select(AccessToken)
        .options(joinedload(AccessToken.user))
        .where(AccessToken.token_hash == hash_token(text))
    )
    if token is None:
        raise Unauthenticated("This token is not valid. Sign in again with: osmosis auth login")
    if token.revoked_at is not None:
        raise Unauthenticated(
            "This token was revoked. Sign in again with: osmosis auth login", code="TOKEN_REVOKED"
        )
    if token.expires_at is not None and token.expires_at <= utc_now():
        raise Unauthenticated(
            "This token has expired. Sign in again with: osmosis auth login", code="TOKEN_EXPIRED"
        )
    return token


def mark_used(database: Database, token: AccessToken) -> None:
    """Note that the token is in use, at most once a minute: not every request is to wait for the database's writer."""
    now = utc_now()
    if token.last_used_at is None or now - token.last_used_at > _USED_RESOLUTION:
        database.note(update(AccessToken).where(AccessToken.id == token.id).values(last_used_at=now))


def revoke_token(session: Session, user_id: str, token_id: str) -> AccessToken:
    """End one of the user's tokens; ending it twice is fine. Raises NotFound for a token of somebody else."""
    token = session.get(AccessToken, token_id)
    if token is None or token.user_id != user_id:
        raise NotFound(f"You have no token with the id {token_id}.", code="TOKEN_NOT_FOUND")
    if token.revoked_at is None:
        token.revoked_at = utc_now()
        record(session, "token.revoke", token.name, user_id=user_id, token_id=token.id)
    return token


def list_tokens(session: Session, user_id: str) -> list[AccessToken]:
    """The user's tokens that still work, newest first."""
    now = utc_now()
    query = (
        select(AccessToken)
        .where(AccessToken.user_id == user_id, AccessToken.revoked_at.is_(None))
        .order_by(AccessToken.created_at.desc())
    )
    return [token for token in session.scalars(query) if token.expires_at is None or token.expires_at > now]
