"""What a command writes while it runs."""

import asyncio
import codecs
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

# A pipe holds 64 KiB.
_PIPE_READS = 4

type Stream = Literal["stdout", "stderr"]
type OnOutput = Callable[[str, Stream], Awaitable[None]]


@dataclass
class Output:
    """One output stream of a command: the first bytes up to a limit are kept, all are passed on."""

    name: Any
    limit: int
    on_output: OnOutput | None
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    dropped: bool = False

    def __post_init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._passing: asyncio.Queue[str | None] = asyncio.Queue()
        self._passer: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Read from now on; the command has its end of the pipe."""
        os.close(self.write_fd)
        self.write_fd = -1
        asyncio.get_running_loop().add_reader(self.read_fd, self._read)
        if self.on_output is not None:
            self._passer = asyncio.create_task(self._pass_on(self.on_output))

    async def finish(self) -> None:
        """Take what is left in the pipe and close it."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
        else:
            for _ in range(_PIPE_READS):  # a program in the background could go on writing
                if not self._read():
                    break
            asyncio.get_running_loop().remove_reader(self.read_fd)
        os.close(self.read_fd)
        if self._passer is not None:
            self._passing.put_nowait(None)
            await self._passer

    def text(self) -> str:
        """What was kept."""
        said = b"".join(self.chunks).decode(errors="replace")
        return f"{said}\n[output after {self.limit} bytes was dropped]\n" if self.dropped else said

    def _read(self) -> bool:
        try:
            chunk = os.read(self.read_fd, 65536)
        except BlockingIOError:
            return False
        if not chunk:
            asyncio.get_running_loop().remove_reader(self.read_fd)
            return False
        kept = chunk[: self.limit - self.size]
        self.dropped = self.dropped or len(kept) < len(chunk)
        self.chunks.append(kept)
        self.size += len(kept)
        if self._passer is not None and kept:
            self._passing.put_nowait(self._decoder.decode(kept))
        return True

    async def _pass_on(self, on_output: OnOutput) -> None:
        while (text := await self._passing.get()) is not None:
            if text:
                await on_output(text, self.name)
