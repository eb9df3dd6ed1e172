"""Training rows from a trace: one row per unbroken token sequence, every sampled token trained at most once."""

from __future__ import annotations

from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.gateway.ledger import Ledger, TokenFate
from osmosis_trainer.gateway.trace import CallRecord, SessionTrace


def rows(
    trace: SessionTrace,
    *,
    advantage: float,
    group: int,
    mask_truncated: bool = True,
    oldest_version: int | None = None,
    max_row_tokens: int | None = None,
    ledger: Ledger | None = None,
) -> list[TrainingRow]:
    """One row per call that nothing continues: the path from its root, sampled tokens with mask 1, all else 0.

    An answer several branches share is trained in the first of them. `mask_truncated` leaves out answers cut off by
    their token limit, `oldest_version` those of older policies, `max_row_tokens` everything beyond that many tokens.
    `ledger` receives the fate of every token. Rows end with their last trained token; a row without one is left out.
    """
    ledger = ledger if ledger is not None else Ledger()
    seen: set[int] = set()
    found = []
    for leaf in trace.leaves():
        token_ids: list[int] = []
        logprobs: list[float] = []
        fates: list[TokenFate] = []
        for call in trace.path(leaf):
            token_ids += [*call.context_ids, *call.token_ids]
            logprobs += [*[0.0] * len(call.context_ids), *call.logprobs]
            fate = (
                TokenFate.BRANCH_DUPLICATE
                if call.index in seen
                else _fate(call, mask_truncated, oldest_version)
            )
            fates += [*[TokenFate.CONTEXT] * len(call.context_ids), *[fate] * len(call.token_ids)]
            seen.add(call.index)
        if max_row_tokens is not None:
            fates[max_row_tokens:] = [
                TokenFate.OVER_BUDGET if fate is TokenFate.TRAINED else fate
                for fate in fates[max_row_tokens:]
            ]
        for fate in fates:
            ledger.add(fate, 1)
        row = _row(token_ids, logprobs, fates, advantage, group, f"{trace.rollout_id}/{leaf}")
        if row is not None:
            found.append(row)
    return found


def unused(trace: SessionTrace, fate: TokenFate, ledger: Ledger) -> None:
    """Enter a whole rollout that is not trained into the ledger: its sampled tokens under `fate`, the rest as context."""
    for call in trace.calls:
        ledger.add(TokenFate.CONTEXT, len(call.context_ids))
        ledger.add(fate, len(call.token_ids))


def _fate(call: CallRecord, mask_truncated: bool, oldest_version: int | None) -> TokenFate:
    if mask_truncated and call.truncated:
        return TokenFate.TRUNCATED
    if oldest_version is not None and call.policy_version < oldest_version:
        return TokenFate.STALE
    return TokenFate.TRAINED


def _row(
    token_ids: list[int],
    logprobs: list[float],
    fates: list[TokenFate],
    advantage: float,
    group: int,
    row_id: str,
) -> TrainingRow | None:
    mask = [int(fate is TokenFate.TRAINED) for fate in fates]
    if 1 not in mask:
        return None
    length = len(mask) - mask[::-1].index(1)
    mask = mask[:length]
    return TrainingRow(
        token_ids=token_ids[:length],
        mask=mask,
        logprobs=[value if trained else 0.0 for value, trained in zip(logprobs[:length], mask, strict=True)],
        advantage=advantage,
        group=group,
        row_id=row_id,
    )
