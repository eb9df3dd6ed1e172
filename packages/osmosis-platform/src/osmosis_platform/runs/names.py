"""Names of runs, unique within a workspace."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_ai.run_names import propose_name
from osmosis_platform.runs.models import Run


def unused_name(session: Session, workspace_id: str) -> str:
    """A name that no run of the workspace has. Call it inside the transaction that inserts the run."""
    candidates = {propose_name() for _ in range(16)}
    # Once nearly all pairs are taken a number keeps the name readable and the search short.
    candidates |= {f"{propose_name()}-{secrets.randbelow(9000) + 1000}" for _ in range(16)}
    taken = set(
        session.scalars(select(Run.name).where(Run.workspace_id == workspace_id, Run.name.in_(candidates)))
    )
    free = sorted(candidates - taken, key=len)
    if not free:  # 16 random numbers out of 9,000 times 10,000 pairs: all taken only if the table is full
        return f"{propose_name()}-{secrets.token_hex(6)}"
    return next((name for name in free if name.count("-") == 1), free[0])
