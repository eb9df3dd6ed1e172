"""Rules of environment secrets: set, list, delete, and what a run gets.

A value is encrypted with its workspace, scope, owner, name and version as associated data, so that a ciphertext copied into
another row, or an older one put back, does not open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from sqlalchemy import Select, select
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import flag_modified

from osmosis_platform.audit.service import record
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput, NotFound
from osmosis_platform.secrets.keys import KeyRing, Sealed
from osmosis_platform.secrets.models import Secret

SecretScope = Literal["workspace", "user"]
Label = Literal["workspace", "user", "user_override"]
MAX_NAME = 255
MAX_VALUE_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def set_secret(
    session: Session,
    keys: KeyRing,
    *,
    workspace_id: str,
    user_id: str,
    scope: SecretScope,
    name: str,
    value: str,
) -> Secret:
    """Create or replace a secret. Whether the user may is for the caller to decide. Raises InvalidInput."""
    _check(name, value)
    secret = _find(session, workspace_id, user_id, scope, name)
    if secret is None:
        secret = Secret(
            workspace_id=workspace_id,
            scope=scope,
            user_id=_owner(scope, user_id),
            name=name,
            version=1,
            creator_id=user_id,
        )
    else:
        secret.version += 1
        secret.updater_id = user_id
    seal_into(secret, keys, value.encode())
    session.add(secret)
    session.flush()
    record(
        session,
        "secret.set",
        name,
        user_id=user_id,
        workspace_id=workspace_id,
        scope=scope,
        version=secret.version,
    )
    return secret


def delete_secret(
    session: Session, *, workspace_id: str, user_id: str, scope: SecretScope, name: str
) -> None:
    """Delete a secret; raises NotFound."""
    secret = _find(session, workspace_id, user_id, scope, name)
    if secret is None:
        kind = "workspace" if scope == "workspace" else "personal"
        raise NotFound(f"There is no {kind} secret named {name}.", code="SECRET_NOT_FOUND")
    session.delete(secret)
    record(session, "secret.delete", name, user_id=user_id, workspace_id=workspace_id, scope=scope)


def list_query(
    workspace_id: str, user_id: str, scope: Literal["all", "workspace", "user"] = "all"
) -> Select[Secret]:
    """The secrets that the user may know of, newest first: those of the workspace and the user's own."""
    visible = {"all": ("", user_id), "workspace": ("",), "user": (user_id,)}[scope]
    return (
        select(Secret)
        .where(Secret.workspace_id == workspace_id, Secret.user_id.in_(visible))
        .order_by(Secret.created_at.desc(), Secret.id)
    )


def resolve_names(
    session: Session,
    workspace_id: str,
    user_id: str,
    names: Collection[str],
    *,
    provided: Collection[str] = (),
    platform_url: str | None = None,
) -> dict[str, Label]:
    """Where a run of this user takes each secret from, without opening any.

    A personal secret wins over the workspace's of the same name (`user_override`), as does a value `provided` for one run.
    Raises NotFound that names all that are missing; `platform_url` is where to add them.
    """
    stored = _stored(session, workspace_id, user_id, names)
    labels: dict[str, Label] = {}
    for name in names:
        scopes = stored.get(name, {}).keys() | ({"user"} if name in provided else set())
        if "user" in scopes:
            labels[name] = "user_override" if "workspace" in scopes else "user"
        elif scopes:
            labels[name] = "workspace"
    missing = [name for name in names if name not in labels]
    if missing:
        where = f"Add them at {platform_url} or with `osmosis secret set`. " if platform_url else ""
        raise NotFound(
            f"{where}Secret(s) not found: {', '.join(missing)}",
            code="SECRETS_NOT_FOUND",
            extra={"platform_url": platform_url} if platform_url else None,
        )
    return labels


def resolve(
    session: Session, keys: KeyRing, workspace_id: str, user_id: str, names: Collection[str]
) -> dict[str, tuple[str, Label]]:
    """`{name: (value, where it came from)}` for a run of this user; raises NotFound, or SecretUnreadable."""
    labels = resolve_names(session, workspace_id, user_id, names)
    stored = _stored(session, workspace_id, user_id, names)
    found: dict[str, tuple[str, Label]] = {}
    for name, label in labels.items():
        secret = stored[name]["workspace" if label == "workspace" else "user"]
        found[name] = (open_value(secret, keys).decode(), label)
    return found


def mark_used(session: Session, workspace_id: str, user_id: str, labels: Mapping[str, Label]) -> None:
    """Note that a run of this user got these secrets, from where the labels say."""
    for name, label in labels.items():
        scope: SecretScope = "workspace" if label == "workspace" else "user"
        found = _find(session, workspace_id, user_id, scope, name)
        if found is not None:
            found.last_used_at = utc_now()
            flag_modified(found, "updated_at")  # keeps its time: nobody changed the value


def own_names(session: Session, workspace_id: str, user_id: str, names: Collection[str]) -> set[str]:
    """Which of these names the user has a personal secret of."""
    mine = list_query(workspace_id, user_id, "user").where(Secret.name.in_(names))
    return {secret.name for secret in session.scalars(mine)}


def seal_into(secret: Secret, keys: KeyRing, value: bytes) -> None:
    """Encrypt a value into its row."""
    sealed = keys.seal(value, _bound_to(secret))
    secret.key_id, secret.nonce, secret.ciphertext = sealed.key_id, sealed.nonce, sealed.ciphertext


def open_value(secret: Secret, keys: KeyRing) -> bytes:
    """Decrypt a row; raises SecretUnreadable."""
    return keys.unseal(Sealed(secret.key_id, secret.nonce, secret.ciphertext), _bound_to(secret))


def _bound_to(secret: Secret) -> bytes:
    return json.dumps(
        [secret.workspace_id, secret.scope, secret.user_id, secret.name, secret.version]
    ).encode()


def _stored(
    session: Session, workspace_id: str, user_id: str, names: Iterable[str]
) -> dict[str, dict[str, Secret]]:
    query = list_query(workspace_id, user_id).where(Secret.name.in_(list(names)))
    stored: dict[str, dict[str, Secret]] = {}
    for secret in session.scalars(query):
        stored.setdefault(secret.name, {})[secret.scope] = secret
    return stored


def _find(session: Session, workspace_id: str, user_id: str, scope: SecretScope, name: str) -> Secret | None:
    return session.scalar(
        select(Secret).where(
            Secret.workspace_id == workspace_id,
            Secret.scope == scope,
            Secret.user_id == _owner(scope, user_id),
            Secret.name == name,
        )
    )


def _owner(scope: SecretScope, user_id: str) -> str:
    return user_id if scope == "user" else ""


def _check(name: str, value: str) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"A secret's name has capital letters, digits and underscores, starts with a letter and has at most {MAX_NAME} "
            "characters.",
            field="name",
        )
    if not value or "\0" in value or len(value.encode()) > MAX_VALUE_BYTES:
        raise InvalidInput(
            f"A secret's value has 1 to {MAX_VALUE_BYTES} bytes and no NUL character.", field="value"
        )
