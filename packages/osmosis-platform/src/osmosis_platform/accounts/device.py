"""Sign-in of the CLI through the browser: a device code for the program, a short user code for the person (RFC 8628)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import AccessToken, DeviceLogin, User
from osmosis_platform.accounts.tokens import DEVICE_TOKEN_DAYS, create_token, hash_token, new_token
from osmosis_platform.audit.service import record
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, InvalidInput, NotFound

CODE_MINUTES = 15
INTERVAL_SECONDS = 2
# Polls may come a little early: clocks and networks jitter.
_TOLERANCE_SECONDS = 0.5
# No vowels (no words), nothing that looks like something else: 20^8 codes.
_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"


class NoToken(InvalidInput):
    """The answer of a poll that got no token. On the wire it is only its code, one of RFC 8628, section 3.5."""

    def body(self) -> dict[str, Any]:
        """`{"error": code}`: clients compare the word."""
        return {"error": self.code, "code": self.code}


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer of the one poll that got the token: its row, its text and its person."""

    token: AccessToken
    text: str
    user: User


@dataclass(frozen=True, slots=True)
class StartedLogin:
    """A login to be approved; both codes are shown once and kept as they are needed: the device code only as a hash."""

    device_code: str
    user_code: str
    expires_at: datetime


def start(session: Session, device_name: str) -> StartedLogin:
    """Begin a login for a machine of this name."""
    now = utc_now()
    session.execute(delete(DeviceLogin).where(DeviceLogin.expires_at < now - timedelta(days=1)))
    name = " ".join(device_name.split())[:100] or "unknown device"
    started = StartedLogin(new_token("osd_"), _user_code(), now + timedelta(minutes=CODE_MINUTES))
    login = DeviceLogin(
        device_code_hash=hash_token(started.device_code),
        user_code=started.user_code,
        device_name=name,
        expires_at=started.expires_at,
    )
    session.add(login)
    session.flush()
    return started


def find_pending(session: Session, user_code: str) -> DeviceLogin:
    """The login that waits for this code, typed with or without dash, in any case; raises NotFound."""
    letters = "".join(letter for letter in user_code.upper() if letter.isalnum())
    login = session.scalar(select(DeviceLogin).where(DeviceLogin.user_code == f"{letters[:4]}-{letters[4:]}"))
    if login is None or login.status != "pending" or login.expires_at <= utc_now():
        raise NotFound(
            "No login waits for this code. Check it, or run `osmosis auth login` again.",
            code="CODE_NOT_FOUND",
        )
    return login


def decide(session: Session, user: User, user_code: str, *, approve: bool) -> DeviceLogin:
    """Approve or deny a login as this person; raises NotFound, or Conflict when somebody else was faster."""
    login = find_pending(session, user_code)
    status = "approved" if approve else "denied"
    changed = session.execute(
        update(DeviceLogin)
        .where(DeviceLogin.id == login.id, DeviceLogin.status == "pending")
        .values(status=status, user_id=user.id)
        .returning(DeviceLogin.id)
    ).one_or_none()
    if changed is None:
        raise Conflict("This login was decided already.")
    session.refresh(login)
    record(session, f"device_login.{status}", login.device_name, user_id=user.id)
    return login


def exists(session: Session, device_code: str) -> bool:
    """Whether this device code is one of ours, whatever became of it."""
    known = select(DeviceLogin.id).where(DeviceLogin.device_code_hash == hash_token(device_code))
    return session.scalar(known) is not None


def poll(session: Session, device_code: str) -> Granted | NoToken:
    """The token, once; else why there is none. NoToken is returned, not raised: the time of the poll has to be kept."""
    login = session.scalar(
        select(DeviceLogin).where(DeviceLogin.device_code_hash == hash_token(device_code)).with_for_update()
    )
    now = utc_now()
    if login is None or login.status == "used" or login.expires_at <= now:
        return NoToken("This login has expired.", code="expired_token")
    if login.status == "denied":
        return NoToken("The login was denied in the browser.", code="access_denied")
    if login.status != "approved" or login.user_id is None:
        shortest = timedelta(seconds=INTERVAL_SECONDS - _TOLERANCE_SECONDS)
        early = login.last_polled_at is not None and now - login.last_polled_at < shortest
        login.last_polled_at = now
        if early:
            return NoToken("Polling too fast.", code="slow_down")
        return NoToken("The login waits for approval in the browser.", code="authorization_pending")
    login.status = "used"
    expires_at = now + timedelta(days=DEVICE_TOKEN_DAYS)
    token, text = create_token(
        session, login.user_id, name=login.device_name, kind="device", expires_at=expires_at
    )
    return Granted(token, text, session.get_one(User, login.user_id))


def _user_code() -> str:
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{letters[:4]}-{letters[4:]}"
