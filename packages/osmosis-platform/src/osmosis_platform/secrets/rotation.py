"""A new master key: everything encrypted is encrypted anew, then the old keys are forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import flag_modified

from osmosis_platform.audit.service import record
from osmosis_platform.db.session import Database
from osmosis_platform.hugging_face.tokens import reencrypt as reencrypt_hub_tokens
from osmosis_platform.repositories.mirrors import reencrypt as reencrypt_connections
from osmosis_platform.runs.own_secrets import reencrypt as reencrypt_run_secrets
from osmosis_platform.secrets.keys import KeyRing
from osmosis_platform.secrets.models import Secret
from osmosis_platform.secrets.service import open_value, seal_into
from osmosis_platform.webhooks.service import reencrypt as reencrypt_webhooks


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did."""

    key_id: str
    secrets: int
    dropped: list[str]


def rotate(database: Database, keys: KeyRing) -> Rotation:
    """Add a key, encrypt every value with it in one transaction, then drop the older keys.

    A crash in between loses nothing: the old keys are still in the file, and the next rotation finishes the work.
    """
    key_id = keys.add_key()
    with database.write() as session:
        count = (
            _reencrypt(session, keys)
            + reencrypt_run_secrets(session, keys)
            + reencrypt_webhooks(session, keys)
            + reencrypt_hub_tokens(session, keys)
            + reencrypt_connections(session, keys)
        )
        record(session, "keys.rotate", key_id, user_id=None, secrets=count)
    return Rotation(key_id, count, keys.drop_keys_before(key_id))


def _reencrypt(session: Session, keys: KeyRing) -> int:
    secrets = list(session.scalars(select(Secret)))
    for secret in secrets:
        seal_into(secret, keys, open_value(secret, keys))
        flag_modified(secret, "updated_at")  # keeps its time: nobody changed the value
    return len(secrets)
