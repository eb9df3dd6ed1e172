"""Rollout-scoped, token-exact sessions of the policy, and training rows from them."""

from osmosis_trainer.gateway.ledger import Ledger, TokenFate
from osmosis_trainer.gateway.policy_gateway import PolicyGateway
from osmosis_trainer.gateway.report import trajectory_report, trajectory_view
from osmosis_trainer.gateway.rows import rows, unused
from osmosis_trainer.gateway.trace import Branch, CallRecord, SessionTrace

__all__ = [
    "Branch",
    "CallRecord",
    "Ledger",
    "PolicyGateway",
    "SessionTrace",
    "TokenFate",
    "rows",
    "trajectory_report",
    "trajectory_view",
    "unused",
]
