"""Rules of a workspace's Hugging Face tokens: add, list, delete, and the value for an upload."""

from __future__ import annotations

import json
import re

import httpx
from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.audit.service import record
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.hugging_face.models import HubToken, HubUpload
from osmosis_platform.secrets.keys import KeyRing, Sealed

MAX_TOKENS = 20
MAX_NAME = 100
MAX_VALUE = 500
ASK_SECONDS = 5.0
_VALUE = re.compile(r"[!-~]+")
_PURPOSE = "hugging-face"


def account_of(endpoint: str, value: str) -> str | None:
    """The account that a token belongs to, as the hub says; None where the hub cannot be asked. Raises InvalidInput for a token it refuses."""
    check_value(value)
    try:
        answer = httpx.get(
            f"{endpoint.rstrip('/')}/api/whoami-v2",
            headers={"Authorization": f"Bearer {value}"},
            timeout=ASK_SECONDS,
        )
        told = answer.json()
    except (httpx.HTTPError, ValueError):
        return None
    if answer.status_code in (401, 403):
        raise InvalidInput("Hugging Face does not accept this token. Make one that may write.", field="value")
    name = told.get("name") if isinstance(told, dict) else None
    return name if answer.is_success and isinstance(name, str) else None


def add_token(
    session: Session,
    keys: KeyRing,
    workspace_id: str,
    by: User,
    *,
    name: str,
    value: str,
    account: str | None,
) -> HubToken:
    """Keep a token, encrypted. Whether the user may is for the caller to decide. Raises InvalidInput and Conflict."""
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput(f"A token's name has 1 to {MAX_NAME} printable characters.", field="name")
    check_value(value)
    mine = HubToken.workspace_id == workspace_id
    if session.scalar(select(HubToken.id).where(mine, HubToken.name == name)) is not None:
        raise Conflict(
            f"There is a token named {name} already. Delete it first, or choose another name.",
            code="TOKEN_NAME_TAKEN",
            field="name",
        )
    if (session.scalar(select(func.count()).select_from(HubToken).where(mine)) or 0) >= MAX_TOKENS:
        raise Conflict(
            f"A workspace has at most {MAX_TOKENS} Hugging Face tokens. Delete one first.",
            code="TOO_MANY_TOKENS",
        )
    token = HubToken(workspace_id=workspace_id, name=name, account=account, creator_id=by.id)
    _seal(token, keys, value)
    session.add(token)
    session.flush()
    record(session, "hf_token.add", name, user_id=by.id, workspace_id=workspace_id)
    return token


def delete_token(session: Session, workspace_id: str, token_id: str, by: User) -> None:
    """Forget a token. An upload that waits for it fails, one that is going on ends as it would. Raises NotFound."""
    token = find_token(session, workspace_id, token_id)
    session.execute(update(HubUpload).where(HubUpload.token_id == token.id).values(token_id=None))
    session.delete(token)
    record(session, "hf_token.delete", token.name, user_id=by.id, workspace_id=workspace_id)


def list_query(workspace_id: str) -> Select[HubToken]:
    """The tokens of a workspace by name; at most `MAX_TOKENS`."""
    return select(HubToken).where(HubToken.workspace_id == workspace_id).order_by(HubToken.name)


def find_token(session: Session, workspace_id: str, token_id: str) -> HubToken:
    """A token of the workspace; raises NotFound."""
    token = session.scalar(list_query(workspace_id).where(HubToken.id == token_id))
    if token is None:
        raise NotFound("There is no such Hugging Face token: it was deleted.", code="HF_TOKEN_NOT_FOUND")
    return token


def value_of(token: HubToken, keys: KeyRing) -> str:
    """The token in clear; raises SecretUnreadable."""
    sealed = Sealed(token.key_id, token.nonce, token.ciphertext)
    return keys.unseal(sealed, _bound_to(token), _PURPOSE).decode()


def reencrypt(session: Session, keys: KeyRing) -> int:
    """Encrypt every token with the current master key; returns how many."""
    found = list(session.scalars(select(HubToken)))
    for token in found:
        _seal(token, keys, value_of(token, keys))
    return len(found)


def check_value(value: str) -> None:
    """Raise InvalidInput unless `value` can be a token."""
    if len(value) > MAX_VALUE or not _VALUE.fullmatch(value):
        raise InvalidInput(
            f"A token has 1 to {MAX_VALUE} letters, digits and signs, without spaces.", field="value"
        )


def _seal(token: HubToken, keys: KeyRing, value: str) -> None:
    sealed = keys.seal(value.encode(), _bound_to(token), _PURPOSE)
    token.key_id, token.nonce, token.ciphertext = sealed.key_id, sealed.nonce, sealed.ciphertext


def _bound_to(token: HubToken) -> bytes:
    return json.dumps(["hugging-face", token.workspace_id, token.name]).encode()
