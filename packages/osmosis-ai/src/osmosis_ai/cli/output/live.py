"""A detail that changes in place on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from osmosis_ai.cli.output.as_rich import detail_parts
from osmosis_ai.cli.output.results import DetailResult
from osmosis_ai.cli.output.visible import visible


@contextmanager
def live() -> Iterator[Callable[[DetailResult, str], None]]:
    """Yields ``show(detail, trouble)``; what it drew is erased at the end, the result of the command follows."""
    console = Console(stderr=True, highlight=False)
    spinner = Spinner("dots", text=Text("Ctrl-C leaves; the run goes on.", style="dim"))
    with Live(spinner, console=console, transient=True) as display:

        def show(detail: DetailResult, trouble: str) -> None:
            last: RenderableType = Text(visible(trouble), style="yellow") if trouble else spinner
            display.update(Group(*detail_parts(detail, console.width), Text(), last), refresh=True)

        yield show
