"""Who looks at a page: the signed-in person, and their view of one workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Depends, Form, Request
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts import sessions
from osmosis_platform.accounts.models import BrowserSession, User
from osmosis_platform.errors import NotFound, PlatformError
from osmosis_platform.http.paging import Page
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.workspaces.models import ROLES, Membership, Workspace
from osmosis_platform.workspaces.scope import check_role

PAGE_SIZE = 50

ROOMS = (
    ("", "Home"),
    ("datasets", "Datasets"),
    ("rollouts", "Rollouts"),
    ("evaluation", "Evaluation runs"),
    ("training", "Training runs"),
    ("models", "Models"),
    ("playground", "Playground"),
    ("git", "Git Integration"),
    ("secrets", "Secrets"),
    ("settings", "Settings"),
)
# Pages of the room "settings", and the role that each needs.
SETTINGS = (
    ("", "General", "member"),
    ("members", "Members", "member"),
    ("keys", "API keys", "member"),
    ("hugging-face", "Hugging Face", "member"),
    ("webhooks", "Webhooks", "admin"),
    ("audit", "Audit log", "admin"),
)


class SignInNeeded(PlatformError):
    """A page that needs a signed-in person; answered with the way to the sign-in page.

    `kept` are fields of a form that was sent: the sign-in page holds them and brings them back to `target`.
    """

    status, code = 401, "SIGN_IN_REQUIRED"

    def __init__(self, target: str, kept: Mapping[str, str] | None = None) -> None:
        super().__init__("Sign in first.")
        self.next = target
        self.target = f"/sign-in?next={quote(target, safe='/')}"
        self.kept = urlencode(kept or {})


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A browser's session and its person."""

    user: User
    session: BrowserSession


def perhaps_signed_in(request: Request, platform: PlatformDep) -> SignedIn | None:
    """The person behind the session cookie, if there is one."""
    cookie = request.cookies.get(sessions.COOKIE)
    if cookie:
        with platform.database.read() as session:
            found = sessions.find_session(session, cookie)
            if found is not None:
                return SignedIn(found.user, found)
    return None


VisitorDep = Annotated[SignedIn | None, Depends(perhaps_signed_in)]


def signed_in(request: Request, person: VisitorDep) -> SignedIn:
    """The person behind the session cookie; raises SignInNeeded."""
    if person is not None:
        return person
    query = request.url.query
    raise SignInNeeded(f"{request.url.path}?{query}" if query else request.url.path)


SignedInDep = Annotated[SignedIn, Depends(signed_in)]


@dataclass(frozen=True, slots=True)
class Viewer:
    """A member looking at a workspace; what every page of it shows around its content."""

    user: User
    workspace_id: str
    workspace: str
    zone: str
    role: str
    csrf: str
    logo: str | None = None
    rooms: tuple[tuple[str, str], ...] = field(default=ROOMS)
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The person's name."""
        return self.user.name

    def may(self, minimum: str) -> bool:
        """Whether the person is at least `minimum` (owner > admin > member)."""
        return ROLES.index(self.role) <= ROLES.index(minimum)

    def require_role(self, minimum: str, to: str) -> None:
        """Raise Forbidden unless the person is at least `minimum`; `to` completes the sentence."""
        check_role(self.role, minimum, self.workspace, to)

    @property
    def settings(self) -> list[tuple[str, str]]:
        """Address and title of the settings pages that the person may open."""
        return [(key, label) for key, label, role in SETTINGS if self.may(role)]


def viewer(workspace: str, platform: PlatformDep, person: SignedInDep) -> Viewer:
    """The view of the workspace in the address; NotFound for a workspace that does not exist or is not theirs."""
    with platform.database.read() as session:
        membership = session.scalar(
            select(Membership)
            .join(Workspace)
            .where(Workspace.name == workspace, Membership.user_id == person.user.id)
        )
        if membership is None:
            raise NotFound(f"There is no workspace {workspace}, or you are not a member of it.")
        found = membership.workspace
        logo = f"/{found.name}/logo?v={found.logo_sha256[:12]}" if found.logo_sha256 else None
        token = person.session.csrf_token
        rooms = ROOMS if platform.settings.serve_models else tuple(r for r in ROOMS if r[0] != "playground")
        others = session.scalars(
            select(Workspace.name)
            .join(Membership)
            .where(Membership.user_id == person.user.id, Workspace.id != found.id)
            .order_by(Workspace.name)
        )
        return Viewer(
            *(person.user, found.id, found.name, found.timezone, membership.role, token, logo, rooms),
            others=tuple(others),
        )


ViewerDep = Annotated[Viewer, Depends(viewer)]


def check_csrf(person: SignedInDep, csrf: Annotated[str, Form()] = "") -> None:
    """Refuse a form that was not made for this session."""
    sessions.check_csrf(person.session, csrf)


Csrf = Depends(check_csrf)


def first_workspace(session: Session, user_id: str) -> str | None:
    """The name of the workspace that a person entered first."""
    return session.scalar(
        select(Workspace.name)
        .join(Membership)
        .where(Membership.user_id == user_id)
        .order_by(Membership.created_at)
        .limit(1)
    )


def page_at(offset: int) -> Page:
    """A page of a dashboard list."""
    return Page(PAGE_SIZE, offset)
