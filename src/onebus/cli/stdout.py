"""Writing lines to stdout so that one knows which of them somebody has got.

Nothing is buffered here: when `Stdout.write` returns, the line is with the terminal, file or pipe. The event loop is
never blocked by a reader that pauses, so leases are kept and signals are heard meanwhile.

A pipe takes 64 KiB that nobody may ever read: ``onebus consume jobs | head -3`` would take hundreds of messages for the
three that are seen. So the first lines are handed over one by one, each after the one before was read, and a line that
was left in the pipe when its reader went away counts as not written. Whoever reads a hundred lines wants the stream.
"""

import asyncio
import os
import select
import stat
from collections.abc import Callable
from typing import Final

from onebus.errors import BusError

STDOUT: Final = 1
PACED_LINES: Final = 100
SHORTEST_LOOK_SECONDS: Final = 0.0002
LONGEST_LOOK_SECONDS: Final = 0.02


class OutputFailed(BusError):
    """What was to be printed could not be written, for example because a disk is full."""

    code = "output_failed"


class Stdout:
    """The standard output, line by line."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._is_pipe = _is_pipe(descriptor)
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._lines = 0
        self._is_written = True

    async def write(self, line: bytes) -> None:
        """Write a line, and its end.

        Cancellation: `is_out` tells whether the line was written nevertheless.

        Raises:
            BrokenPipeError: nobody reads any more.
            OutputFailed: it cannot be written for another reason.
        """
        rest = memoryview(line + b"\n")
        self._is_written = False
        while rest:
            if not self._room.poll(0):
                await self._wait_for_room()
            # A pipe with any room has room for this much, so this never blocks.
            rest = rest[self._write(rest[: select.PIPE_BUF]) :]
        self._is_written = True
        self._lines += 1
        if self._is_pipe and self._lines <= PACED_LINES:
            await self._wait_for_reader()

    @property
    def is_out(self) -> bool:
        """Whether the last line was written as a whole, and not left behind by a reader that has gone."""
        return self._is_written and not (self._is_pipe and _unread(self._descriptor) and _is_deserted(self._descriptor))

    def _write(self, piece: memoryview) -> int:
        try:
            return os.write(self._descriptor, piece)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"The output cannot be written: {error.strerror}.") from None

    async def _wait_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Event()
        loop.add_writer(self._descriptor, room.set)
        try:
            await room.wait()
        finally:
            loop.remove_writer(self._descriptor)

    async def _wait_for_reader(self) -> None:
        # Nobody tells a writer that a pipe was emptied, so it has to look.
        seconds = SHORTEST_LOOK_SECONDS
        while _unread(self._descriptor):
            if _is_deserted(self._descriptor):
                raise BrokenPipeError
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, LONGEST_LOOK_SECONDS)


def tell_when_reader_is_gone(tell: Callable[[], None], descriptor: int = STDOUT) -> Callable[[], None]:
    """Call `tell` when stdout is a pipe that nobody reads any more; returns a function that stops this.

    Otherwise a command that has nothing to write would not notice.
    """
    if not _is_pipe(descriptor):
        return lambda: None
    loop = asyncio.get_running_loop()

    def look() -> None:
        # It is told once, and a pipe that can be read here is a strange one: it would be told for ever.
        loop.remove_reader(descriptor)
        if _is_deserted(descriptor):
            tell()

    def forget() -> None:
        loop.remove_reader(descriptor)

    loop.add_reader(descriptor, look)
    return forget


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _is_deserted(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _unread(descriptor: int) -> int:
    import fcntl
    import termios

    answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0")
    return int.from_bytes(answer, "little")
