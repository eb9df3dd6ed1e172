"""Tables of workspaces."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from osmosis_platform.accounts.models import User
from osmosis_platform.db.base import Base, Identified

ROLES = ("owner", "admin", "member")


class Workspace(Identified, Base):
    """A team's space. `name` is its address: `^[a-z0-9][a-z0-9-]*$`; the logo is a blob with its media type."""

    __tablename__ = "workspaces"
    name: Mapped[str] = mapped_column(unique=True)
    timezone: Mapped[str] = mapped_column(default="UTC")
    sdk_from_index: Mapped[bool] = mapped_column(default=False)
    logo_sha256: Mapped[str | None]
    logo_type: Mapped[str | None]


class Invite(Identified, Base):
    """A link that lets one person in; only the hash of its text is kept. With an `email` it is for that address only."""

    __tablename__ = "invites"
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    email: Mapped[str | None]
    role: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    workspace: Mapped[Workspace] = relationship()
    creator: Mapped[User] = relationship()


class Membership(Identified, Base):
    """A person's role (`owner`, `admin`, `member`) in a workspace."""

    __tablename__ = "memberships"
    follows = "user_id"
    __table_args__ = (UniqueConstraint("workspace_id", "user_id"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    role: Mapped[str]
    workspace: Mapped[Workspace] = relationship()
