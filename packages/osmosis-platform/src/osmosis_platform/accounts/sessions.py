"""Browser sessions: a cookie that only its hash is kept of, and a CSRF token that every form carries."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.accounts.models import BrowserSession, User
from osmosis_platform.accounts.service import check_password
from osmosis_platform.accounts.tokens import hash_token, new_token
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Forbidden

COOKIE = "osmosis_session"
MAX_AGENT = 300


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A fresh session and the text of its cookie, which is never seen again."""

    session: BrowserSession
    cookie: str


def sign_in(
    platform: Platform,
    email: str,
    password: str,
    *,
    address: str,
    old_cookie: str | None = None,
    agent: str | None = None,
) -> SignedIn:
    """Check a password and start a session; one that the browser already had ends, so that no session can be planted.

    `address` is where the request came from. Raises Unauthenticated, or RateLimited after too many tries.
    """
    keys = (f"address:{address}", f"email:{email.strip().lower()}")
    platform.limits.sign_in.check(*keys)
    with platform.database.read() as session:
        user = check_password(session, email, password)
    platform.limits.sign_in.forget(*keys)
    with platform.database.write() as session:
        if old_cookie:
            sign_out(session, old_cookie)
        return start_session(session, user, platform.settings.session_days, agent)


def start_session(session: Session, user: User, days: int, agent: str | None = None) -> SignedIn:
    """A new session of this person; also clears away sessions that have ended. `agent` is how the browser names itself."""
    now = utc_now()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= now))
    cookie = new_token("oss_")
    row = BrowserSession(
        user_id=user.id,
        token_hash=hash_token(cookie),
        csrf_token=secrets.token_urlsafe(32),
        expires_at=now + timedelta(days=days),
        agent=agent[:MAX_AGENT] if agent else None,
    )
    session.add(row)
    session.flush()
    return SignedIn(row, cookie)


def find_session(session: Session, cookie: str) -> BrowserSession | None:
    """The live session of a cookie, with its user loaded."""
    return session.scalar(
        select(BrowserSession)
        .options(joinedload(BrowserSession.user))
        .where(BrowserSession.token_hash == hash_token(cookie), BrowserSession.expires_at > utc_now())
    )


def sessions_of(session: Session, user_id: str) -> list[BrowserSession]:
    """The browsers in which a person is signed in, newest first."""
    query = select(BrowserSession).where(
        BrowserSession.user_id == user_id, BrowserSession.expires_at > utc_now()
    )
    return list(session.scalars(query.order_by(BrowserSession.created_at.desc(), BrowserSession.id)))


def check_csrf(browser: BrowserSession, given: str) -> None:
    """Raise Forbidden unless a form carries its session's token."""
    if not hmac.compare_digest(browser.csrf_token.encode(), given.encode()):
        raise Forbidden("This form is out of date. Reload the page and try again.", code="CSRF")


def sign_out(session: Session, cookie: str) -> None:
    """End the session of a cookie, if there is one."""
    session.execute(delete(BrowserSession).where(BrowserSession.token_hash == hash_token(cookie)))


def sign_out_everywhere(session: Session, user_id: str, *, keep: str | None = None) -> None:
    """End every session of a person, except the one with the id `keep`: after a change of password."""
    session.execute(
        delete(BrowserSession).where(BrowserSession.user_id == user_id, BrowserSession.id != (keep or ""))
    )
