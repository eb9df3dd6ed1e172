"""Rules of accounts: people, passwords, and who a credential belongs to."""

from __future__ import annotations

import re
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import AccessToken, User
from osmosis_platform.accounts.tokens import authenticate
from osmosis_platform.errors import Conflict, InvalidInput, NotFound, Unauthenticated

MIN_PASSWORD = 8
MAX_PASSWORD = 1024
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.?[^@\s]+")
_hasher = PasswordHasher()


def create_user(session: Session, *, email: str, name: str, password: str | None = None) -> User:
    """A new person; without a password they cannot sign in to the dashboard. Raises InvalidInput or Conflict."""
    address = normalise_email(email)
    if session.scalar(select(User.id).where(User.email == address)) is not None:
        raise Conflict(f"There is already an account for {address}.", code="EMAIL_TAKEN", field="email")
    user = User(email=address, password_hash=hash_password(password) if password is not None else None)
    set_name(user, name)
    session.add(user)
    session.flush()
    return user


def set_name(user: User, name: str) -> None:
    """Give a person the name that others see; raises InvalidInput."""
    if not name.strip() or len(name) > 200:
        raise InvalidInput("A name has 1 to 200 characters.", field="name")
    user.name = name.strip()


def normalise_email(email: str) -> str:
    """The address in lower case; raises InvalidInput when it is none."""
    address = email.strip().lower()
    if len(address) > 254 or not _EMAIL.fullmatch(address):
        raise InvalidInput("This is not an e-mail address.", field="email")
    return address


def find_user(session: Session, email: str) -> User:
    """The person with this address; raises NotFound."""
    user = session.scalar(select(User).where(User.email == email.strip().lower()))
    if user is None:
        raise NotFound(f"There is no account for {email.strip()}.", code="USER_NOT_FOUND")
    return user


def hash_password(password: str) -> str:
    """The argon2id hash; raises InvalidInput for a password that is too short or absurdly long."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise InvalidInput(
            f"A password has at least {MIN_PASSWORD} and at most {MAX_PASSWORD} characters.", field="password"
        )
    return _hasher.hash(password)


def set_password(user: User, password: str) -> None:
    """Replace the password. The caller ends the user's other sessions."""
    user.password_hash = hash_password(password)


def check_password(session: Session, email: str, password: str) -> User:
    """The person with this address and password.

    Raises Unauthenticated, after the same time and in the same words whether the address or the password is wrong.
    """
    user = session.scalar(select(User).where(User.email == email.strip().lower()))
    known = user.password_hash if user is not None and user.password_hash is not None else _dummy_hash()
    try:
        _hasher.verify(known, password[:MAX_PASSWORD])
    except VerificationError:
        user = None
    if user is None or user.password_hash is None:
        raise Unauthenticated("The e-mail address or the password is wrong.", code="SIGN_IN_FAILED")
    return user


def authenticate_token(session: Session, text: str) -> tuple[User, AccessToken]:
    """The person behind a bearer token, and the token; raises Unauthenticated."""
    token = authenticate(session, text)
    return token.user, token


@cache
def _dummy_hash() -> str:
    return _hasher.hash("no account has this password")
