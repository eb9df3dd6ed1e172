"""The cache of the sampler, one slot per running request: keys and values, and the states of recurrent layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of every attention layer, each [slots, kv_heads, columns, head_dim].

    Columns grow by doubling up to `max_columns`, so that a model with a long context costs only what is used. One
    column more than can be read is kept as a bin: idle rows of a dense forward write there. `states` [slots, ...] are
    those of layers without columns, where a slot's text ends; `recurrent` says that the model has such layers.
    """

    def __init__(
        self,
        *,
        layers: Iterable[int],
        slots: int,
        kv_heads: int,
        head_dim: int,
        max_columns: int,
        dtype: torch.dtype,
        device: torch.device,
        columns: int = 256,
        recurrent: bool = False,
    ) -> None:
        self.slots = slots
        self.recurrent = recurrent
        self.states: dict[tuple[str, int, int], Tensor] = {}
        self.max_columns = max_columns
        self.columns = min(columns, max_columns)
        shape = (slots, kv_heads, self.columns + 1, head_dim)
        layers = list(layers)
        self.keys = {layer: torch.zeros(shape, dtype=dtype, device=device) for layer in layers}
        self.values = {layer: torch.zeros(shape, dtype=dtype, device=device) for layer in layers}

    @property
    def bin(self) -> int:
        """The column that is written by idle rows and never read."""
        return self.columns

    def reserve(self, columns: int) -> None:
        """Make room for `columns` columns; held values stay."""
        if columns <= self.columns:
            return
        old = self.columns
        self.columns = min(max(columns, 2 * old), self.max_columns)
        for tensors in (self.keys, self.values):
            for layer, held in tensors.items():
                slots, heads, _, width = held.shape
                grown = held.new_zeros((slots, heads, self.columns + 1, width))
                grown[:, :, :old] = held[:, :, :old]
                tensors[layer] = grown

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of slot `source` to slot `target`, and its states as they are."""
        for tensors in (self.keys, self.values):
            for held in tensors.values():
                held[target, :, :length] = held[source, :, :length]
        for states in self.states.values():
            states[target] = states[source]

    def exchange(self, left: int, right: int, length: int) -> None:
        """What two slots hold changes places: their first `length` columns, and their states."""
        for tensors in (self.keys, self.values):
            for held in tensors.values():
                _swap(held[left, :, :length], held[right, :, :length])
        for states in self.states.values():
            _swap(states[left], states[right])

    def store_states(self, key: tuple[str, int, int], slots: Tensor, states: Tensor) -> None:
        """Replace the states `key` of `slots` by `states` [n, ...]."""
        if key not in self.states:
            # Made outside of inference mode, as keys and values are, so that slots can be copied anywhere.
            with torch.inference_mode(False):
                shape = (self.slots, *states.shape[1:])
                self.states[key] = torch.zeros(shape, dtype=states.dtype, device=states.device)
        self.states[key][slots] = states


class SlotLedger:
    """What each slot holds: which adapter version's keys, for which tokens; and which slots are free.

    A freed slot keeps its keys until it is needed, so that the next turn of a conversation, or another sample of the
    same prompt, finds them. `whole`: only a slot's whole text can be continued, because its states know no earlier place.
    """

    def __init__(self, slots: int, *, whole: bool = False) -> None:
        self._whole = whole
        self.tokens: list[list[int]] = [[] for _ in range(slots)]
        self.owner: list[tuple[str | None, int] | None] = [None] * slots
        self._freed_at = [0] * slots
        self._free = set(range(slots))
        self._clock = 0

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def best_donor(self, owner: tuple[str | None, int], tokens: list[int]) -> tuple[int, int]:
        """The slot with the longest common prefix and that length; slot -1 when no slot has any."""
        best, length = -1, 0
        for slot, held in enumerate(self.tokens):
            if self.owner[slot] != owner or len(held) <= length or held[: length + 1] != tokens[: length + 1]:
                continue
            shared = self.reusable(held, tokens)
            if shared <= length:
                continue
            best, length = slot, shared
            if length == len(tokens):
                break
        return best, length

    def reusable(self, held: list[int], tokens: list[int]) -> int:
        """How many of `tokens` a slot that holds `held` saves."""
        shared = common_prefix(held, tokens)
        if self._whole and not shared == len(held) < len(tokens):
            return 0
        return shared

    def take(self, donor: int, shared: int) -> int:
        """Claim a slot: the donor itself when it is free and nothing of it would be lost, else the longest unused."""
        if donor in self._free and shared == len(self.tokens[donor]):
            slot = donor
        else:
            others = self._free - {donor} or self._free
            # Empty slots first, then the longest unused; the lowest number keeps dense forwards small.
            slot = min(others, key=lambda s: (bool(self.tokens[s]), self._freed_at[s], s))
        self._free.discard(slot)
        return slot

    def hold(self, slot: int, owner: tuple[str | None, int], tokens: list[int]) -> None:
        """Record that the slot's keys now belong to `tokens` (the list is kept and may be appended to)."""
        self.owner[slot] = owner
        self.tokens[slot] = tokens

    def exchange(self, left: int, right: int) -> int:
        """Two slots change places; returns how many of their first columns hold anything."""
        notes: Iterable[list[Any]] = (self.tokens, self.owner, self._freed_at)
        for note in notes:
            note[left], note[right] = note[right], note[left]
        if (left in self._free) != (right in self._free):
            self._free ^= {left, right}
        return max(len(self.tokens[left]), len(self.tokens[right]))

    def release(self, slot: int) -> None:
        """The request of this slot is over; its keys stay usable."""
        self._clock += 1
        self._freed_at[slot] = self._clock
        self._free.add(slot)

    def forget(self, name: str | None) -> None:
        """Drop what free slots hold for every version of adapter `name`; running slots end with their own version."""
        for slot, owner in enumerate(self.owner):
            if owner is not None and owner[0] == name:
                self.owner[slot] = None
                if slot in self._free:
                    self.tokens[slot] = []


def _swap(left: Tensor, right: Tensor) -> None:
    kept = left.clone()
    left.copy_(right)
    right.copy_(kept)


def common_prefix(left: list[int], right: list[int]) -> int:
    """Length of the common prefix; bisection over list comparisons, which run at C speed."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low if left[low : low + 1] != right[low : low + 1] else low + 1
