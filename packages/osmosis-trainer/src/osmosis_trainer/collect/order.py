"""Which rows a run sees, in which order: the validation split and a seeded shuffle per epoch.

Orders come from keyed hashes, not from a library's random generator: the same seed gives the same order on every
platform and version, which is what an exact resume needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on nothing else."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def _shuffled(rows: list[int], *key: int | str) -> list[int]:
    return sorted(rows, key=lambda row: (derive_seed(*key, row), row))


@dataclass(frozen=True, slots=True)
class Split:
    """Row indices of a dataset, ascending: `validation` is never trained on."""

    training: list[int]
    validation: list[int]


def split_rows(rows: int, validation_rows: int, seed: int) -> Split:
    """Hold out `validation_rows` of `rows` rows. The choice depends on `seed` alone, not on training settings."""
    held_out = sorted(_shuffled(list(range(rows)), "validation-split", seed)[:validation_rows])
    chosen = set(held_out)
    return Split(training=[row for row in range(rows) if row not in chosen], validation=held_out)


class DataOrder:
    """The endless stream of training rows: every epoch is its own shuffle of all of them.

    `position` counts the rows taken since the run began and is all that a resume has to restore.
    """

    def __init__(self, rows: list[int], seed: int, position: int = 0) -> None:
        self._rows = rows
        self._seed = seed
        self.position = position
        self._open_epoch = -1
        self._open_order: list[int] = []
        self._open_digest = ""

    @property
    def epoch(self) -> int:
        """Epoch, from 0, of the next row."""
        return self.position // len(self._rows)

    def digest(self) -> str:
        """Hash of the order of the open epoch; it differs when the rows or the seed do."""
        order = self._order(self.epoch)
        if not self._open_digest:
            self._open_digest = hashlib.sha256(",".join(map(str, order)).encode()).hexdigest()
        return self._open_digest

    def take(self, count: int) -> list[int]:
        """The next `count` row indices; an epoch's last rows are followed by the next epoch's first."""
        taken = []
        for _ in range(count):
            taken.append(self._order(self.epoch)[self.position % len(self._rows)])
            self.position += 1
        return taken

    def _order(self, epoch: int) -> list[int]:
        if epoch != self._open_epoch:
            self._open_order = _shuffled(self._rows, "epoch", self._seed, epoch)
            self._open_epoch, self._open_digest = epoch, ""
        return self._open_order
