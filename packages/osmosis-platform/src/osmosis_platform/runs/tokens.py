"""Run tokens: what a worker shows to report events of its run. A new one is made at every start of a worker, so that a
worker that was replaced can change nothing."""

from __future__ import annotations

import hashlib
import secrets

from osmosis_platform.runs.models import Run


def issue(run: Run) -> str:
    """Give the run a fresh token, which ends the one before; only its hash is kept."""
    token = "osr_" + secrets.token_urlsafe(32)
    run.run_token_hash = digest(token)
    return token


def digest(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
