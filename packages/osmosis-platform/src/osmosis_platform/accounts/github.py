"""Signing in with GitHub: OAuth 2.0 authorization code with PKCE (RFC 6749, 7636), for people who have an account here.

GitHub says who somebody is by their primary, verified e-mail address. What it grants is used once and not kept.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.errors import Forbidden, Unauthenticated, Unavailable
from osmosis_platform.secrets.keys import KeyRing
from osmosis_platform.settings import Settings

COOKIE = "osmosis_github"
SECONDS = 600
PURPOSE = "github"
CALLBACK = "/sign-in/github/callback"
_TIMEOUT = httpx.Timeout(10.0)


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in on its way: where the browser goes, and what its cookie remembers until it comes back."""

    address: str
    cookie: str


def begin(settings: Settings, keys: KeyRing, target: str) -> Begun:
    """Begin a sign-in that leads to the page `target`."""
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "client_id": settings.github_client_id or "",
        "redirect_uri": settings.resolved_public_url + CALLBACK,
        "scope": "user:email",
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    kept = {"state": state, "verifier": verifier, "target": target, "until": int(time.time()) + SECONDS}
    text = base64.urlsafe_b64encode(json.dumps(kept).encode()).decode()
    cookie = f"{text}.{keys.sign(PURPOSE, text.encode())}"
    return Begun(f"{settings.github_url}/login/oauth/authorize?{urlencode(query)}", cookie)


def read_cookie(keys: KeyRing, cookie: str, state: str) -> dict[str, Any]:
    """What the cookie remembers. Raises Forbidden unless the answer belongs to a sign-in that this browser began."""
    text, _, signature = cookie.partition(".")
    if keys.verify(PURPOSE, text.encode(), signature):
        kept: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text))
        if kept["until"] > time.time() and hmac.compare_digest(kept["state"].encode(), state.encode()):
            return kept
    raise Forbidden(
        "This sign-in was not begun in this browser, or it took too long. Try again.", code="OAUTH_STATE"
    )


def email_of(settings: Settings, code: str, verifier: str) -> str:
    """The primary, verified e-mail address of who granted `code`. Raises Unauthenticated, or Unavailable when GitHub does not answer."""
    assert settings.github_client_secret is not None
    asked = {
        "client_id": settings.github_client_id,
        "client_secret": settings.github_client_secret.get_secret_value(),
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": settings.resolved_public_url + CALLBACK,
    }
    json_only = {"Accept": "application/json"}
    try:
        with httpx.Client(timeout=_TIMEOUT, follow_redirects=False) as client:
            granted = client.post(
                f"{settings.github_url}/login/oauth/access_token", data=asked, headers=json_only
            )
            token = granted.json().get("access_token") if granted.is_success else None
            if not isinstance(token, str):
                raise Unauthenticated("GitHub did not confirm this sign-in. Try again.", code="OAUTH_REFUSED")
            headers = {**json_only, "Authorization": f"Bearer {token}"}
            answer = client.get(f"{settings.github_api_url}/user/emails", headers=headers)
            emails = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise Unavailable("GitHub does not answer. Try again, or sign in with your password.") from error
    for entry in emails:
        if entry.get("primary") and entry.get("verified"):
            return str(entry["email"]).strip().lower()
    raise Unauthenticated(
        "Your GitHub account has no verified primary e-mail address.", code="OAUTH_NO_EMAIL"
    )


def user_of(session: Session, email: str) -> User:
    """The person with this address; raises Forbidden: accounts come from invitations."""
    user = session.scalar(select(User).where(User.email == email))
    if user is None:
        raise Forbidden(
            f"There is no account for {email} here. Ask for an invitation first.", code="OAUTH_NO_ACCOUNT"
        )
    return user
