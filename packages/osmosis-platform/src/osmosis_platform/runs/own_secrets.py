"""Secret values that belong to one run: given at submit, encrypted in its row, gone when it ends."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.runs.models import Run, RunSecret
from osmosis_platform.secrets.keys import KeyRing, Sealed

_PURPOSE = "run-secrets"


def keep(session: Session, keys: KeyRing, run: Run, values: Mapping[str, str]) -> None:
    """Encrypt values for a run, replacing those of the same name."""
    for name, value in values.items():
        sealed = keys.seal(value.encode(), _bound_to(run.id, name), _PURPOSE)
        row = session.get(RunSecret, (run.id, name)) or RunSecret(run_id=run.id, name=name)
        row.key_id, row.nonce, row.ciphertext = sealed.key_id, sealed.nonce, sealed.ciphertext
        session.add(row)
    session.flush()


def values(session: Session, keys: KeyRing, run: Run) -> dict[str, str]:
    """The run's own values, decrypted."""
    found = {}
    for row in session.scalars(select(RunSecret).where(RunSecret.run_id == run.id)):
        sealed = Sealed(row.key_id, row.nonce, row.ciphertext)
        found[row.name] = keys.unseal(sealed, _bound_to(run.id, row.name), _PURPOSE).decode()
    return found


def reencrypt(session: Session, keys: KeyRing) -> int:
    """Encrypt every run's values with the current key; returns how many."""
    rows = list(session.scalars(select(RunSecret)))
    for row in rows:
        bound_to = _bound_to(row.run_id, row.name)
        value = keys.unseal(Sealed(row.key_id, row.nonce, row.ciphertext), bound_to, _PURPOSE)
        sealed = keys.seal(value, bound_to, _PURPOSE)
        row.key_id, row.nonce, row.ciphertext = sealed.key_id, sealed.nonce, sealed.ciphertext
    return len(rows)


def _bound_to(run_id: str, name: str) -> bytes:
    return f"run:{run_id}:{name}".encode()
