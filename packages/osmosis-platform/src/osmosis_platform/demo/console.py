"""What the person at the terminal sees."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from osmosis_platform.demo.figures import Figures, Score
    from osmosis_platform.demo.host import Host

BARS = "▁▂▃▄▅▆▇█"
QUIET_SECONDS = 15


class Narrator:
    """Prints steps, commands and progress; a bar that moves on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self.started = time.monotonic()

    def step(self, text: str) -> None:
        """A heading."""
        self.console.print(f"\n[bold cyan]{self._clock()}  {escape(text)}[/]")

    def say(self, text: str) -> None:
        """A remark."""
        self.console.print(escape(text), soft_wrap=True)

    def error(self, text: str) -> None:
        """What went wrong."""
        self._errors.print(f"[bold red]Error:[/] {escape(text)}")

    def command(self, *words: str) -> None:
        """A command line about to run."""
        self.console.print(f"[dim]$[/] {escape(shlex.join(words))}", soft_wrap=True)

    def output(self, text: str) -> None:
        """What a command printed."""
        if text.strip():
            self.console.print(escape(text.rstrip()), style="dim", soft_wrap=True)

    @contextmanager
    def waiting(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show that something goes on; call the yielded function with the state."""
        began = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(what) as status:
                yield lambda text: status.update(
                    f"{escape(what)}: {escape(text)}  {time.monotonic() - began:.0f} s"
                )
        else:
            shown = [-float(QUIET_SECONDS)]

            def update(text: str) -> None:
                if time.monotonic() - shown[0] >= QUIET_SECONDS:
                    shown[0] = time.monotonic()
                    self.say(f"  {what}: {text}")

            yield update
        self.say(f"  {what}: done in {time.monotonic() - began:.0f} s")

    def report(self, figures: Figures, host: Host) -> None:
        """The closing table, curve and addresses."""
        self.step("What happened")
        self.say(f"{figures.model} against its base on held-out rows, with 95 % intervals:")
        table = Table()
        for column in ("policy", "decoding", "mean reward", "pass rate", "attempts"):
            table.add_column(column)
        rows = (
            ("base", "sampled", figures.base_sampled),
            ("base", "greedy", figures.base_greedy),
            ("trained", "sampled", figures.trained_sampled),
            ("trained", "greedy", figures.trained_greedy),
        )
        for policy, decoding, score in rows:
            table.add_row(policy, decoding, *_shown(score), str(score.attempts))
        self.console.print(table)
        first, last = figures.reward_curve[0], figures.reward_curve[-1]
        self.say(f"Training reward by step  {sparkline(figures.reward_curve)}  {first:.2f} -> {last:.2f}")
        self.say(f"The served adapter says: {figures.answer}")
        self.say(f"\nDashboard (sign in as {host_account(host)}):")
        for name, url in figures.pages.items():
            self.say(f"  {name:<18} {url}")
        total = sum(figures.seconds.values())
        self.say(f"\n{total:.0f} s in all: " + ", ".join(f"{k} {v:.0f}" for k, v in figures.seconds.items()))

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        return f"{minutes:02d}:{seconds:02d}"


def host_account(host: Host) -> str:
    """Where the sign-in data is."""
    return f"the owner in {host.folder / 'sign-in.txt'}"


def sparkline(values: list[float]) -> str:
    """The values as bars; the lowest is the shortest, the highest the tallest."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[round((v - low) / span * (len(BARS) - 1))] for v in values)


def _shown(score: Score) -> tuple[str, str]:
    reward, rate = f"{score.reward:.2f}", f"{score.pass_rate:.1%}"
    if score.reward_interval:
        reward += "  [{:.2f}, {:.2f}]".format(*score.reward_interval)
    if score.pass_interval:
        rate += "  [{:.1%}, {:.1%}]".format(*score.pass_interval)
    return reward, rate
