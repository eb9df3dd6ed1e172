"""Tables of accounts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column, relationship

from osmosis_platform.db.base import Base, Identified


class User(Identified, Base):
    """A person. `email` is stored in lower case."""

    __tablename__ = "users"
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    password_hash: Mapped[str | None]


class BrowserSession(Identified, Base):
    """A signed-in browser; only the hash of its cookie is kept. `agent` is how it names itself."""

    __tablename__ = "browser_sessions"
    follows = "user_id"
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    csrf_token: Mapped[str]
    expires_at: Mapped[datetime]
    agent: Mapped[str | None]
    user: Mapped[User] = relationship()


class AccessToken(Identified, Base):
    """A bearer token of the CLI (`kind` = `device` or `personal`); only its hash is kept."""

    __tablename__ = "access_tokens"
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str]
    kind: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    hint: Mapped[str]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    user: Mapped[User] = relationship()


class DeviceLogin(Identified, Base):
    """A CLI login that waits for approval in the browser. `status`: pending, approved, denied, used."""

    __tablename__ = "device_logins"
    device_code_hash: Mapped[str] = mapped_column(unique=True)
    user_code: Mapped[str] = mapped_column(unique=True)
    device_name: Mapped[str]
    status: Mapped[str] = mapped_column(default="pending")
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))
    expires_at: Mapped[datetime]
    last_polled_at: Mapped[datetime | None]
